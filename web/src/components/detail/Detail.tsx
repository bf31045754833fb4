import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { isPassing, pollMs, Problem, type RunDetail, runQuery, theLive, TIMELINE_POLL_MS, useConnection } from "@/api";
import { Loading, Quiet } from "@/components/ui/EmptyState";
import { Waiting } from "@/components/transcript/PendingCalls";
import { Trouble } from "@/components/ui/ErrorMessage";
import { goesOn, titleOf } from "@/views/detail";
import { Header } from "./Header";
import { BackToRuns } from "./links";
import { Panes } from "./Panes";

const NOT_FOUND = 404;
/** Error codes for a run id that is malformed. */
const NO_ID: readonly string[] = ["invalid_run_id", "invalid_parameter"];

/** The selected run: header, pending questions, transcript, timeline and result. */
export function Detail({ runId, event }: { runId: string; event: number | undefined }) {
  const poll = pollMs(useConnection(), TIMELINE_POLL_MS);
  const asked = useQuery({
    ...runQuery(runId),
    refetchInterval: ({ state }) =>
      state.data ? goesOn(state.data.status) && poll : isPassing(state.error) && TIMELINE_POLL_MS,
  });
  useTitle(asked.data);
  const problem = useMet(asked);
  if (!asked.data && !problem) {
    return (
      <>
        <Heading />
        <Loading what="the run" />
      </>
    );
  }
  if (isGone(asked.error)) return <Gone />;
  if (!asked.data) {
    return (
      <div>
        <Heading />
        <div className="px-3 pt-2 md:hidden">
          <BackToRuns />
        </div>
        <Trouble error={problem} onRetry={() => void asked.refetch()} />
      </div>
    );
  }
  const isMissing = event !== undefined && !isIn(asked.data, event);
  return (
    <div className="@container flex min-h-0 flex-1 flex-col divide-y divide-line overflow-y-auto">
      <Header run={asked.data} />
      {/* The data on the page may be stale. */}
      {asked.isError && <Trouble error={asked.error} onRetry={() => void asked.refetch()} />}
      <Waiting asked={asked.data.awaits} runId={runId} />
      {isMissing && (
        <p role="status" className="shrink-0 px-3 py-1.5 text-xs text-ink-dull">
          There is no event {event} in this run.
        </p>
      )}
      <Panes run={asked.data} event={isMissing ? undefined : event} />
    </div>
  );
}

/** Return the error of the last request until a request succeeds, also while the next request is running. */
function useMet({ data, error, failureReason }: UseQueryResult<RunDetail>): Error | null {
  const [last, setLast] = useState<Error | null>(null);
  const met = error ?? failureReason;
  const now = data ? null : (met ?? last);
  if (now !== last) setLast(now);
  return now;
}

const isGone = (error: unknown) =>
  error instanceof Problem && (error.status === NOT_FOUND || NO_ID.includes(error.code));

/** Whether the run has the event, or may still get it. The live log may be ahead of the run's row. */
const isIn = (run: RunDetail, event: number) =>
  goesOn(run.status) || event <= Math.max(run.last_seq, theLive().log(run.id).lastSeq);

/** A heading for screen readers, while the task is unknown. */
const Heading = () => <h1 className="sr-only">Run</h1>;

function Gone() {
  return (
    <Quiet>
      <Heading />
      <p>This run is not here (any more).</p>
      <BackToRuns />
    </Quiet>
  );
}

function useTitle(run: RunDetail | undefined): void {
  const title = run ? titleOf(run) : "Shopfloor";
  useEffect(() => {
    document.title = title;
    return () => {
      document.title = "Shopfloor";
    };
  }, [title]);
}
