import clsx from "clsx";
import type { ReactNode } from "react";

interface TileProps {
  label: ReactNode;
  /** The figure; undefined while it is loading, null if it is unknown. */
  value: string | null | undefined;
  note?: ReactNode;
  /** A small picture at the right. */
  children?: ReactNode;
  className?: string;
}

/** A figure with its name, and what it means in a few words. Its size is the same before the figure is known. */
export function TileBody({ label, value, note, children, className }: TileProps) {
  return (
    <span className={clsx("tile-body", className)}>
      <span className="tile-label">{label}</span>
      <span className="tile-value">
        <b className="num">{value === undefined ? <span className="skeleton w-10" /> : (value ?? "–")}</b>
        {children}
      </span>
      <span className="tile-note num">{note ?? " "}</span>
    </span>
  );
}
