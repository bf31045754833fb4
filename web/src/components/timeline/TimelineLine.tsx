import clsx from "clsx";
import { memo } from "react";
import type { TimelineRow } from "@/api";
import { formatClock, formatDateTime } from "@/views/time";
import { lineOf, MARKS, TONE_LABELS, type Tone } from "@/views/timelineRows";

const MARK_COLORS: Record<Tone, string> = {
  status: "text-ink-faint",
  started: "text-waiting",
  completed: "text-done",
  failed: "text-failed",
  error: "text-failed",
  cancelled: "text-quiet",
};

/** A line of the timeline; a click goes to its event. */
export const TimelineLine = memo(function TimelineLine({
  row,
  cancelled,
  isSelected,
  onEvent,
}: {
  row: TimelineRow;
  cancelled: string | null;
  /** Whether the address names its event. */
  isSelected: boolean;
  onEvent: (seq: number) => void;
}) {
  const line = lineOf(row, cancelled);
  const isError = line.tone === "error" || line.tone === "failed";
  return (
    <button
      type="button"
      aria-current={isSelected || undefined}
      onClick={() => onEvent(line.seq)}
      className={clsx(
        "flex w-full items-baseline gap-2 px-3 py-0.5 text-left text-xs/5 -outline-offset-2 hover:bg-app-hover",
        isSelected && "bg-app-selected",
      )}
    >
      <time
        dateTime={row.created_at}
        title={formatDateTime(row.created_at)}
        className={clsx("shrink-0 tabular-nums", isSelected ? "text-ink-dull" : "text-ink-faint")}
      >
        {formatClock(row.created_at)}
      </time>
      <span
        aria-hidden
        className={clsx(
          "w-3 shrink-0 text-center",
          isSelected && line.tone === "status" ? "text-ink-dull" : MARK_COLORS[line.tone],
        )}
      >
        {MARKS[line.tone]}
      </span>
      {line.name !== null && (
        <span className={clsx("max-w-[50%] shrink-0 truncate font-mono", isError ? "text-failed" : "text-ink")}>
          {line.name}
        </span>
      )}
      {line.duration !== null && <span className="shrink-0 text-ink-dull tabular-nums">{line.duration}</span>}
      {TONE_LABELS[line.tone] && <span className="sr-only">{TONE_LABELS[line.tone]}</span>}
      <span
        title={line.text}
        className={clsx(
          "min-w-0 flex-1",
          line.tone === "error" || (line.tone === "cancelled" && line.name === null)
            ? "line-clamp-3 break-words"
            : "truncate",
          isError
            ? "text-failed"
            : line.tone === "cancelled"
              ? "text-quiet"
              : line.name === null
                ? "text-ink"
                : "font-mono text-ink-dull",
        )}
      >
        {line.text}
      </span>
    </button>
  );
});
