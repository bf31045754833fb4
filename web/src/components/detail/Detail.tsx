import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import {
  isTransient,
  pollMs,
  Problem,
  type RunDetail,
  runQuery,
  getLiveStream,
  TIMELINE_POLL_MS,
  useConnection,
  useIsDisconnect,
} from "@/api";
import { ReplyBar } from "@/components/again/ReplyBar";
import { isAgentRun, useAgain } from "@/components/again/useAgain";
import { Loading, EmptyState } from "@/components/ui/EmptyState";
import { PendingCalls } from "@/components/transcript/PendingCalls";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { useDocumentTitle } from "@/documentTitle";
import { isActive, titleOf } from "@/views/detail";
import { Header } from "./Header";
import { BackToRuns } from "./links";
import { Panes } from "./Panes";

const NOT_FOUND = 404;
/** Error codes for a run id that is malformed. */
const MALFORMED_ID_CODES: readonly string[] = ["invalid_run_id", "invalid_parameter"];

/** The selected run: header, pending questions, transcript, timeline and result. */
export function Detail({ runId, event }: { runId: string; event: number | undefined }) {
  const poll = pollMs(useConnection(), TIMELINE_POLL_MS);
  const query = useQuery({
    ...runQuery(runId),
    refetchInterval: ({ state }) =>
      state.data ? isActive(state.data.status) && poll : isTransient(state.error) && TIMELINE_POLL_MS,
  });
  useDocumentTitle(query.data && titleOf(query.data));
  const lastError = useLastError(query);
  const isDisconnect = useIsDisconnect(query.error);
  if (!query.data && !lastError) {
    return (
      <>
        <Heading />
        <Loading subject="the run" />
      </>
    );
  }
  if (isNotFound(query.error)) return <RunNotFound />;
  if (!query.data) {
    return (
      <div>
        <Heading />
        <div className="px-3 pt-2 md:hidden">
          <BackToRuns hasText />
        </div>
        <ErrorMessage error={lastError} onRetry={() => void query.refetch()} />
      </div>
    );
  }
  return (
    <RunView
      run={query.data}
      event={event}
      // The data on the page may be stale.
      problem={
        query.isError && !isDisconnect && <ErrorMessage error={query.error} onRetry={() => void query.refetch()} />
      }
    />
  );
}

function RunView({ run, event, problem }: { run: RunDetail; event: number | undefined; problem: ReactNode }) {
  const again = useAgain(run);
  const isMissing = event !== undefined && !mayHaveEvent(run, event);
  return (
    <div className="flex min-h-0 flex-1 flex-col overflow-y-auto">
      <Header run={run} again={again} />
      {problem}
      <PendingCalls calls={run.awaits} runId={run.id} />
      {isMissing && (
        <p role="status" className="shrink-0 border-t border-border px-5 py-1.5 text-12 text-text-2">
          This run has no event {event}.
        </p>
      )}
      <Panes run={run} event={isMissing ? undefined : event} onFork={isAgentRun(run) ? undefined : again?.fork} />
      {again && isAgentRun(run) && <ReplyBar run={run} />}
    </div>
  );
}

/** Return the error of the last request until a request succeeds, also while the next request is running. */
function useLastError({ data, error, failureReason }: UseQueryResult<RunDetail>): Error | null {
  const [last, setLast] = useState<Error | null>(null);
  const current = data ? null : (error ?? failureReason ?? last);
  if (current !== last) setLast(current);
  return current;
}

const isNotFound = (error: unknown) =>
  error instanceof Problem && (error.status === NOT_FOUND || MALFORMED_ID_CODES.includes(error.code));

/** Whether the run has the event, or may still get it. The live log may be ahead of the run's row. */
const mayHaveEvent = (run: RunDetail, event: number) =>
  isActive(run.status) || event <= Math.max(run.last_seq, getLiveStream().log(run.id).lastSeq);

/** A heading for screen readers, while the task is unknown. */
const Heading = () => <h1 className="sr-only">Run</h1>;

function RunNotFound() {
  return (
    <EmptyState>
      <Heading />
      <p>Run not found. It may have been deleted.</p>
      <BackToRuns hasText />
    </EmptyState>
  );
}
