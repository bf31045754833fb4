import clsx from "clsx";
import type { ReactNode } from "react";
import type { Status } from "@/api";

const COLORS: Record<Status, string> = {
  running: "bg-running-back text-running",
  done: "bg-done-back text-done",
  failed: "bg-failed-back text-failed",
  waiting: "bg-waiting-back text-waiting",
  cancelled: "bg-quiet-back text-quiet",
  queued: "bg-quiet-back text-quiet",
};

interface StatusProps {
  status: Status;
  /** Whether the process that executed the run is gone. */
  interrupted?: boolean;
  /** Kinds of calls that the run waits for, as `waits_for` has them. */
  waitsFor?: readonly string[] | null;
  /** Whether to draw an outline, if the background has a similar color. */
  isOutlined?: boolean;
}

/** The status of a run in its color; for a waiting run also what it waits for, truncated. */
export function StatusBadge({ status, interrupted = false, waitsFor, isOutlined = false }: StatusProps) {
  const kinds = waitsFor?.length ? `: ${[...new Set(waitsFor)].join(", ").replaceAll("_", " ")}` : "";
  return (
    <span
      data-status={status}
      title={interrupted ? "The process that executed this run is gone" : kinds ? `${status}${kinds}` : undefined}
      className={clsx(
        "inline-flex items-center gap-1 rounded px-1.5 py-px text-xs font-medium whitespace-nowrap",
        kinds ? "min-w-[4.25rem]" : "shrink-0",
        interrupted ? COLORS.waiting : COLORS[status],
        isOutlined && "ring-1 ring-current ring-inset",
      )}
    >
      {status === "running" && !interrupted && (
        <span aria-hidden className="size-1.5 animate-pulse rounded-full bg-current" />
      )}
      <span className="truncate">
        {interrupted ? "interrupted" : status}
        {kinds}
      </span>
    </span>
  );
}

/** A short label: a kind, a model. */
export function Tag({ children, title }: { children: ReactNode; title?: string }) {
  return (
    <span
      title={title}
      className="inline-flex items-center rounded border border-line px-1.5 py-px text-xs whitespace-nowrap text-ink-dull"
    >
      {children}
    </span>
  );
}
