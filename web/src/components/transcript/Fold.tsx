import clsx from "clsx";
import type { ReactNode } from "react";

interface Props {
  open: boolean;
  onToggle: () => void;
  title?: string | undefined;
  /** The part that is always visible. */
  head: ReactNode;
  children?: ReactNode;
  /** Whether to draw a frame around the head and the body. */
  isFramed?: boolean;
}

/** A head that expands and collapses its body. */
export function Fold({ open, onToggle, title, head, children, isFramed = false }: Props) {
  return (
    <div className={clsx(isFramed && "overflow-hidden rounded border border-line bg-app-raised")}>
      <button
        type="button"
        aria-expanded={open}
        title={title}
        onClick={onToggle}
        className={clsx(
          "flex w-full min-w-0 items-baseline gap-1.5 text-left hover:bg-app-hover",
          isFramed ? "px-2 py-1" : "rounded py-0.5",
        )}
      >
        <span aria-hidden className="w-3 shrink-0 text-center text-[10px] text-ink-faint">
          {open ? "▾" : "▸"}
        </span>
        {head}
      </button>
      {open && children}
    </div>
  );
}
