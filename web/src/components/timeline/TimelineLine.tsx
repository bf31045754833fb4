import clsx from "clsx";
import { memo } from "react";
import type { TimelineRow } from "@/api";
import { clock, exact } from "@/views/time";
import { lineOf, MARKS, MEANINGS, type Tone } from "@/views/timelineRows";

const MARK_COLOURS: Record<Tone, string> = {
  status: "text-ink-faint",
  started: "text-waiting",
  completed: "text-done",
  failed: "text-failed",
  error: "text-failed",
  cancelled: "text-quiet",
};

/** A line of the timeline; a click goes to its event. */
export const Row = memo(function Row({
  row,
  cancelled,
  isChosen,
  onEvent,
}: {
  row: TimelineRow;
  cancelled: string | null;
  /** Whether the address names its event. */
  isChosen: boolean;
  onEvent: (seq: number) => void;
}) {
  const line = lineOf(row, cancelled);
  const bad = line.tone === "error" || line.tone === "failed";
  return (
    <button
      type="button"
      aria-current={isChosen || undefined}
      onClick={() => onEvent(line.seq)}
      className={clsx(
        "flex w-full items-baseline gap-2 px-3 py-0.5 text-left text-xs/5 -outline-offset-2 hover:bg-app-hover",
        isChosen && "bg-app-selected",
      )}
    >
      <time
        dateTime={row.created_at}
        title={exact(row.created_at)}
        className={clsx("shrink-0 tabular-nums", isChosen ? "text-ink-dull" : "text-ink-faint")}
      >
        {clock(row.created_at)}
      </time>
      <span
        aria-hidden
        className={clsx(
          "w-3 shrink-0 text-center",
          isChosen && line.tone === "status" ? "text-ink-dull" : MARK_COLOURS[line.tone],
        )}
      >
        {MARKS[line.tone]}
      </span>
      {line.name !== null && (
        <span className={clsx("max-w-[50%] shrink-0 truncate font-mono", bad ? "text-failed" : "text-ink")}>
          {line.name}
        </span>
      )}
      {line.took !== null && <span className="shrink-0 text-ink-dull tabular-nums">{line.took}</span>}
      {MEANINGS[line.tone] && <span className="sr-only">{MEANINGS[line.tone]}</span>}
      <span
        title={line.text}
        className={clsx(
          "min-w-0 flex-1",
          line.tone === "error" || (line.tone === "cancelled" && line.name === null)
            ? "line-clamp-3 break-words"
            : "truncate",
          bad
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
