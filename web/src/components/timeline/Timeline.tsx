import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { useCallback, useEffect, useMemo, useRef } from "react";
import {
  pollMs,
  problemOf,
  type RunDetail,
  spansQuery,
  theLive,
  TIMELINE_POLL_MS,
  timelineQuery,
  type TimelineRow,
  useConnection,
} from "@/api";
import { Button } from "@/components/ui/Button";
import { Loading } from "@/components/ui/EmptyState";
import { Trouble } from "@/components/ui/ErrorMessage";
import { cancelReason, goesOn } from "@/views/detail";
import { lineOf } from "@/views/timelineRows";
import { Bars } from "./TimeChart";
import { Rows } from "./TimelineLines";

interface Props {
  run: RunDetail;
  /** The event that the address names. */
  chosen: number | undefined;
  /** Go to the event in the transcript. */
  onEvent: (seq: number) => void;
  /** Called when the row of the selected event was scrolled into sight. */
  onShown: () => void;
  open: boolean;
  onToggle: () => void;
  className: string | undefined;
}

/** The timeline of a run: a chart of where the time went, and a line for each event. */
export function Timeline({ run, chosen, onEvent, onShown, open, onToggle, className }: Props) {
  return (
    <section aria-label="Event timeline" className={clsx("flex min-h-0 flex-col overflow-hidden", className)}>
      <h2 className="shrink-0">
        <button
          type="button"
          aria-expanded={open}
          onClick={onToggle}
          className="flex w-full items-center gap-1.5 px-3 py-1.5 text-left text-xs font-semibold text-ink-dull hover:bg-app-hover hover:text-ink"
        >
          <span aria-hidden className="w-3 text-ink-faint">
            {open ? "▾" : "▸"}
          </span>
          Timeline
          {run.event_count > 0 && (
            <span className="font-normal text-ink-faint tabular-nums">
              {run.event_count.toLocaleString("en")} {run.event_count === 1 ? "entry" : "entries"}
            </span>
          )}
        </button>
      </h2>
      {open && <Content run={run} chosen={chosen} onEvent={onEvent} onShown={onShown} />}
    </section>
  );
}

function Content({ run, chosen, onEvent, onShown }: Pick<Props, "run" | "chosen" | "onEvent" | "onShown">) {
  const live = goesOn(run.status);
  const poll = pollMs(useConnection(), TIMELINE_POLL_MS);
  // An active run may have new rows since the last fetch.
  const asked = { refetchInterval: run.status === "running" && poll, ...(live ? { staleTime: 0 } : {}) };
  const timeline = useQuery({ ...timelineQuery(run.id), ...asked });
  const spans = useQuery({ ...spansQuery(run.id), ...asked });
  // The server streams events only of followed runs.
  useEffect(() => (live ? theLive().follow(run.id) : undefined), [live, run.id]);
  const { refetch } = timeline;
  const { refetch: refetchSpans } = spans;
  const again = useCallback(() => {
    void refetch();
    void refetchSpans();
  }, [refetch, refetchSpans]);
  useOnEnd(live, again);
  // A row written between the fetches of the run and of its timeline shows only in the run's count.
  const known = timeline.data?.more === false ? timeline.data.rows.length : run.event_count;
  useEffect(() => {
    if (run.event_count > known) again();
  }, [run.event_count, known, again]);
  const cancelled = cancelReason(run);
  const told = timeline.data?.rows;
  const left = useMemo(() => leftBy(cancelled, told ?? []), [cancelled, told]);
  if (timeline.isPending) return <Loading what="the timeline" />;
  if (!timeline.data) return <Trouble error={timeline.error} onRetry={() => void timeline.refetch()} />;
  const { rows, more } = timeline.data;
  if (rows.length === 0) {
    return <p className="px-3 py-2 text-ink-faint">{live ? "Nothing has happened yet." : "Nothing was recorded."}</p>;
  }
  return (
    <>
      {spans.data && spans.data.spans.length > 0 && <Bars spans={spans.data} run={run} left={left} onEvent={onEvent} />}
      {spans.isError && !spans.data && (
        <p className="flex shrink-0 items-center gap-2 border-b border-line px-3 pb-1.5 text-xs text-ink-faint">
          Where the time went is not known: {problemOf(spans.error, 0).message}
          <Button onClick={() => void spans.refetch()}>Try again</Button>
        </p>
      )}
      <Rows
        rows={rows}
        cancelled={cancelled}
        chosen={chosen}
        follows={live}
        onEvent={onEvent}
        onShown={onShown}
        more={more}
        onEnd={more && !timeline.isFetching && !timeline.isError ? () => void timeline.refetch() : null}
      />
      {timeline.isError && <Trouble error={timeline.error} onRetry={() => void timeline.refetch()} />}
    </>
  );
}

/** Return the events by which something ended only because the run was cancelled. */
function leftBy(cancelled: string | null, rows: readonly TimelineRow[]): ReadonlySet<number> {
  return new Set(
    cancelled === null ? [] : rows.filter((row) => lineOf(row, cancelled).tone === "cancelled").map((row) => row.seq),
  );
}

/** Call a function when the run ends: its last rows can be fetched then. */
function useOnEnd(live: boolean, then: () => void): void {
  const was = useRef(live);
  const latest = useRef(then);
  useEffect(() => {
    latest.current = then;
  });
  useEffect(() => {
    if (was.current && !live) latest.current();
    was.current = live;
  }, [live]);
}
