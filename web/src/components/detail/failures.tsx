import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { type RunDetail, timelineQuery } from "@/api";
import { Button } from "@/components/ui/Button";
import { useShortcuts } from "@/shortcuts";
import { cancelReason } from "@/views/detail";
import { failuresOf } from "@/views/timelineRows";

export interface Failures {
  readonly count: number;
  /** The number of the failure that the address names, from 1; 0 if it names none. */
  readonly position: number;
  /** The event of the failure that ended a failed run; undefined if nothing failed, or until it is known. */
  readonly last: number | undefined;
  readonly go: (step: 1 | -1) => void;
}

/** The failures of a run, and keys that go from one to the next. */
export function useFailures(run: RunDetail, event: number | undefined, goTo: (seq: number) => void): Failures {
  // The timeline fetches the rows; here they are only read.
  const timeline = useQuery({ ...timelineQuery(run.id), enabled: false }).data;
  const rows = timeline?.rows;
  const reason = cancelReason(run);
  const seqs = useMemo(() => failuresOf(rows ?? [], reason), [rows, reason]);
  const go = (step: 1 | -1) => {
    const next =
      step > 0
        ? (seqs.find((seq) => seq > (event ?? 0)) ?? seqs[0])
        : (seqs.findLast((seq) => seq < (event ?? Infinity)) ?? seqs.at(-1));
    if (next !== undefined) goTo(next);
  };
  useShortcuts("page", { "[": () => go(-1), "]": () => go(1) });
  return {
    count: seqs.length,
    position: event === undefined ? 0 : seqs.indexOf(event) + 1,
    last: timeline && lastFailure(run, timeline, seqs),
    go,
  };
}

/** Return the last failure of an ended run. In a timeline that is not loaded to its end, it is at the end of the run. */
function lastFailure(
  run: RunDetail,
  { rows, more: hasMore }: { rows: readonly unknown[]; more: boolean },
  seqs: readonly number[],
): number | undefined {
  if (hasMore) return run.last_seq;
  return rows.length < run.event_count ? undefined : seqs.at(-1);
}

/** How many failures there are, and buttons that go to them. */
export function FailureButtons({ failures: { count, position, go } }: { failures: Failures }) {
  if (count === 0) return null;
  return (
    <span className="flex shrink-0 items-center gap-0.5 text-12 text-text-2 tabular-nums">
      <span className="mr-1">
        {position > 0 ? `${position} of ${count}` : `${count} ${count === 1 ? "failure" : "failures"}`}
      </span>
      <Button
        variant="ghost"
        className="h-6! px-1"
        aria-label="Previous failure"
        title="Previous failure ([)"
        onClick={() => go(-1)}
      >
        <kbd>[</kbd>
        <span aria-hidden className="hidden coarse:inline">
          ‹
        </span>
      </Button>
      <Button
        variant="ghost"
        className="h-6! px-1"
        aria-label="Next failure"
        title="Next failure (])"
        onClick={() => go(1)}
      >
        <kbd>]</kbd>
        <span aria-hidden className="hidden coarse:inline">
          ›
        </span>
      </Button>
    </span>
  );
}
