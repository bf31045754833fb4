import clsx from "clsx";
import type { ReactNode } from "react";
import { Icon } from "@/components/ui/Icon";

interface Props {
  open: boolean;
  onToggle: () => void;
  title?: string | undefined;
  /** The part that is always visible. */
  head: ReactNode;
  children?: ReactNode;
  /** What is below the head while the fold is closed. */
  closedBody?: ReactNode;
  /** Whether to draw a frame around the head and an open body. */
  isFramed?: boolean;
  isFailed?: boolean;
}

/** A head that expands and collapses its body. Closed, it is a line without a frame. */
export function Fold({ open, onToggle, title, head, children, closedBody, isFramed = false, isFailed = false }: Props) {
  const hasFrame = isFramed && (open || closedBody !== undefined);
  return (
    <div
      className={clsx(
        hasFrame && "my-0.5 overflow-hidden rounded-2 border bg-bg",
        hasFrame && (isFailed ? "border-[color-mix(in_srgb,var(--failed)_45%,var(--border))]" : "border-border"),
      )}
    >
      <button
        type="button"
        aria-expanded={open}
        title={title}
        onClick={onToggle}
        className={clsx(
          "flex min-h-(--call-h) w-full min-w-0 items-center gap-1.5 px-2 text-left -outline-offset-2 hover:bg-bg-hover",
          !hasFrame && "rounded-2",
          hasFrame && isFailed && "bg-failed-bg",
        )}
      >
        <Icon name={open ? "down" : "right"} className="size-3 stroke-2 text-icon" />
        {head}
      </button>
      {open ? children : closedBody}
    </div>
  );
}
