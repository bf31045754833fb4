import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { useCallback, useEffect, useMemo, useRef } from "react";
import {
  pollMs,
  problemOf,
  type RunDetail,
  type Spans,
  spansQuery,
  getLiveStream,
  TIMELINE_POLL_MS,
  timelineQuery,
  type TimelineRow,
  useConnection,
  useIsDisconnect,
} from "@/api";
import type { ViewSync } from "@/components/detail/viewSync";
import { Button } from "@/components/ui/Button";
import { Loading } from "@/components/ui/EmptyState";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { cancelReason, isActive } from "@/views/detail";
import { itemsOf } from "@/views/timelineRows";
import { EmptyChart, TimeChart } from "./TimeChart";
import { TimelineLines } from "./TimelineLines";

interface Props {
  run: RunDetail;
  /** The event that the address names. */
  selectedSeq: number | undefined;
  /** Go to the event in the transcript. */
  onEvent: (seq: number) => void;
  /** What the transcript shows now. */
  sync: ViewSync;
  className: string | undefined;
}

/** The timeline of a run: a map of where the time went, and a line for each call. */
export function Timeline({ run, selectedSeq, onEvent, sync, className }: Props) {
  return (
    <section
      aria-label="Event timeline"
      className={clsx("flex min-h-0 shrink-0 flex-col overflow-hidden bg-bg-side", className)}
    >
      <Content run={run} selectedSeq={selectedSeq} onEvent={onEvent} sync={sync} />
    </section>
  );
}

function Content({ run, selectedSeq, onEvent, sync }: Omit<Props, "className">) {
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
  const log = getLiveStream().log(run.id);
  const items = useItems(timeline.data?.rows, spans.data, reason);
  const cancelledBy = useMemo(
    () =>
      new Set(
        items.flatMap((item) =>
          (item.kind === "call" && item.ending === "cancelled") || (item.kind === "error" && item.isCancellation)
            ? [item.lastSeq]
            : [],
        ),
      ),
    [items],
  );
  const isDisconnect = useIsDisconnect(timeline.error);
  if (timeline.isPending) return <Loading subject="the timeline" />;
  if (!timeline.data) return <ErrorMessage error={timeline.error} onRetry={() => void timeline.refetch()} />;
  const { rows, more: hasMore } = timeline.data;
  if (rows.length === 0) {
    return (
      <p className="px-3 py-2 text-text-3">{isRunActive ? "Nothing has happened yet." : "Nothing was recorded."}</p>
    );
  }
  return (
    <>
      {spans.data && spans.data.spans.length > 0 ? (
        <TimeChart spans={spans.data} run={run} cancelledBy={cancelledBy} onEvent={onEvent} sync={sync} log={log} />
      ) : (
        isRunActive && !spans.isError && <EmptyChart />
      )}
      {spans.isError && !spans.data && (
        <p className="flex shrink-0 items-center gap-2 border-b border-border px-3 py-1.5 text-12 text-text-3">
          Could not load where the time went: {problemOf(spans.error, 0).message}
          <Button onClick={() => void spans.refetch()}>Try again</Button>
        </p>
      )}
      <TimelineLines
        items={items}
        log={log}
        selectedSeq={selectedSeq}
        sync={sync}
        isGrowing={isRunActive}
        onEvent={onEvent}
        hasMore={hasMore}
        fetchMore={hasMore && !timeline.isFetching && !timeline.isError ? () => void timeline.refetch() : null}
      />
      {timeline.isError && !isDisconnect && (
        <ErrorMessage error={timeline.error} onRetry={() => void timeline.refetch()} />
      )}
    </>
  );
}

const NO_ROWS: readonly TimelineRow[] = [];

function useItems(rows: readonly TimelineRow[] = NO_ROWS, spans: Spans | undefined, reason: string | null) {
  const spansBySeq = useMemo(
    () => new Map((spans?.spans ?? []).filter(({ count = 1 }) => count === 1).map((span) => [span.seq, span])),
    [spans],
  );
  return useMemo(() => itemsOf(rows, reason, spansBySeq), [rows, spansBySeq, reason]);
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
