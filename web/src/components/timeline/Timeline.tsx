import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { useCallback, useEffect, useMemo, useRef } from "react";
import {
  pollMs,
  problemOf,
  type RunDetail,
  spansQuery,
  getLiveStream,
  TIMELINE_POLL_MS,
  timelineQuery,
  type TimelineRow,
  useConnection,
} from "@/api";
import { Button } from "@/components/ui/Button";
import { Loading } from "@/components/ui/EmptyState";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { cancelReason, isActive } from "@/views/detail";
import { lineOf } from "@/views/timelineRows";
import { TimeChart } from "./TimeChart";
import { TimelineLines } from "./TimelineLines";

interface Props {
  run: RunDetail;
  /** The event that the address names. */
  selectedSeq: number | undefined;
  /** Go to the event in the transcript. */
  onEvent: (seq: number) => void;
  /** Called when the row of the selected event was scrolled into sight. */
  onScrolled: () => void;
  isOpen: boolean;
  onToggle: () => void;
  className: string | undefined;
}

/** The timeline of a run: a chart of where the time went, and a line for each event. */
export function Timeline({ run, selectedSeq, onEvent, onScrolled, isOpen, onToggle, className }: Props) {
  return (
    <section aria-label="Event timeline" className={clsx("flex min-h-0 flex-col overflow-hidden", className)}>
      <h2 className="shrink-0">
        <button
          type="button"
          aria-expanded={isOpen}
          onClick={onToggle}
          className="flex w-full items-center gap-1.5 px-3 py-1.5 text-left text-xs font-semibold text-ink-dull hover:bg-app-hover hover:text-ink"
        >
          <span aria-hidden className="w-3 text-ink-faint">
            {isOpen ? "▾" : "▸"}
          </span>
          Timeline
          {run.event_count > 0 && (
            <span className="font-normal text-ink-faint tabular-nums">
              {run.event_count.toLocaleString("en")} {run.event_count === 1 ? "entry" : "entries"}
            </span>
          )}
        </button>
      </h2>
      {isOpen && <Content run={run} selectedSeq={selectedSeq} onEvent={onEvent} onScrolled={onScrolled} />}
    </section>
  );
}

function Content({
  run,
  selectedSeq,
  onEvent,
  onScrolled,
}: Pick<Props, "run" | "selectedSeq" | "onEvent" | "onScrolled">) {
  const isRunActive = isActive(run.status);
  const poll = pollMs(useConnection(), TIMELINE_POLL_MS);
  // An active run may have new rows since the last fetch.
  const queryOptions = { refetchInterval: run.status === "running" && poll, ...(isRunActive ? { staleTime: 0 } : {}) };
  const timeline = useQuery({ ...timelineQuery(run.id), ...queryOptions });
  const spans = useQuery({ ...spansQuery(run.id), ...queryOptions });
  // The server streams events only of followed runs.
  useEffect(() => (isRunActive ? getLiveStream().follow(run.id) : undefined), [isRunActive, run.id]);
  const { refetch } = timeline;
  const { refetch: refetchSpans } = spans;
  const refetchAll = useCallback(() => {
    void refetch();
    void refetchSpans();
  }, [refetch, refetchSpans]);
  useOnRunEnd(isRunActive, refetchAll);
  // A row written between the fetches of the run and of its timeline shows only in the run's count.
  const knownCount = timeline.data?.more === false ? timeline.data.rows.length : run.event_count;
  useEffect(() => {
    if (run.event_count > knownCount) refetchAll();
  }, [run.event_count, knownCount, refetchAll]);
  const reason = cancelReason(run);
  const loadedRows = timeline.data?.rows;
  const cancelledBy = useMemo(() => eventsOfCancellation(reason, loadedRows ?? []), [reason, loadedRows]);
  if (timeline.isPending) return <Loading what="the timeline" />;
  if (!timeline.data) return <ErrorMessage error={timeline.error} onRetry={() => void timeline.refetch()} />;
  const { rows, more: hasMore } = timeline.data;
  if (rows.length === 0) {
    return (
      <p className="px-3 py-2 text-ink-faint">{isRunActive ? "Nothing has happened yet." : "Nothing was recorded."}</p>
    );
  }
  return (
    <>
      {spans.data && spans.data.spans.length > 0 && (
        <TimeChart spans={spans.data} run={run} cancelledBy={cancelledBy} onEvent={onEvent} />
      )}
      {spans.isError && !spans.data && (
        <p className="flex shrink-0 items-center gap-2 border-b border-line px-3 pb-1.5 text-xs text-ink-faint">
          Could not load where the time went: {problemOf(spans.error, 0).message}
          <Button onClick={() => void spans.refetch()}>Try again</Button>
        </p>
      )}
      <TimelineLines
        rows={rows}
        cancelReason={reason}
        selectedSeq={selectedSeq}
        isGrowing={isRunActive}
        onEvent={onEvent}
        onScrolled={onScrolled}
        hasMore={hasMore}
        fetchMore={hasMore && !timeline.isFetching && !timeline.isError ? () => void timeline.refetch() : null}
      />
      {timeline.isError && <ErrorMessage error={timeline.error} onRetry={() => void timeline.refetch()} />}
    </>
  );
}

/** Return the events by which something ended only because the run was cancelled. */
function eventsOfCancellation(reason: string | null, rows: readonly TimelineRow[]): ReadonlySet<number> {
  return new Set(
    reason === null ? [] : rows.filter((row) => lineOf(row, reason).tone === "cancelled").map((row) => row.seq),
  );
}

/** Call a function when the run ends: its last rows can be fetched then. */
function useOnRunEnd(isRunActive: boolean, callback: () => void): void {
  const wasActiveRef = useRef(isRunActive);
  const callbackRef = useRef(callback);
  useEffect(() => {
    callbackRef.current = callback;
  });
  useEffect(() => {
    if (wasActiveRef.current && !isRunActive) callbackRef.current();
    wasActiveRef.current = isRunActive;
  }, [isRunActive]);
}
