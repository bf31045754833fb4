import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { useMemo } from "react";
import { isTransient, PAGE_EVENTS, pageOf, Problem, runQuery, useLog, type RunDetail } from "@/api";
import { RunLink } from "@/components/detail/links";
import { StatusBadge, StatusSign } from "@/components/ui/Badge";
import { Button } from "@/components/ui/Button";
import { Duration } from "@/components/ui/Time";
import { Loading } from "@/components/ui/EmptyState";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { cancelReason, isActive, isCancellation } from "@/views/detail";
import { costOf } from "@/views/amounts";
import { headline } from "@/views/headline";
import { oneLine } from "@/views/json";
import { withoutMarks } from "@/views/markdown";
import type { SubRunRow } from "@/views/rowTypes";
import { rowsOf } from "@/views/transcriptRows";
import { CallHead, type CallState } from "./Call";
import { Fold } from "./Fold";
import { useFolds } from "./useFolds";
import { TranscriptContext, useTranscriptContext } from "./transcriptContext";
import { useRowState } from "./rowState";
import { RowView } from "./Row";
import { StreamingRows } from "./StreamingRows";
import { useLoadRange } from "./useLoadRange";
import { isSingleStep } from "./labels";
import { openInside } from "./VisibleRows";

/** A sub-run; its transcript expands inside of this one. */
export function SubRun({ row, open }: { row: SubRunRow; open: boolean }) {
  const { onToggle, isRunActive, cancelReason: cancelReasonText } = useTranscriptContext();
  const { call, end } = row;
  const isCancelled = isCancellation(cancelReasonText, end?.payload.error, end?.payload.error_code);
  const child = call.child_run_id;
  // An agent's helper has a name of its own; another worker goes by the worker's name.
  const name = (call.payload.kind !== "agent" && call.payload.worker) || call.payload.name;
  const summary = withoutMarks(headline((row.toolCall ?? row).call.payload.input));
  const state = stateOf(row, isCancelled, isRunActive);
  const result = end?.payload.error ?? textOf(end?.payload.result);
  return (
    <Fold
      isFramed
      open={open}
      isFailed={state === "failed"}
      onToggle={() => onToggle(row.seq, !open)}
      title={`Sub-run${child ? ` ${child}` : ""}`}
      head={
        <CallHead name={name} icon="agent" summary={summary || call.path.split(".").join(" › ")} isProse state={state}>
          {state === "done" && <StatusSign status="done" className="size-3.5" />}
          {(end || isRunActive) && (
            <Duration from={call.timestamp} to={end?.timestamp ?? null} ms={end?.payload.duration_ms ?? null} />
          )}
        </CallHead>
      }
      closedBody={
        <p className="flex items-center gap-3 border-t border-border py-1 pr-3 pl-[30px] text-12 text-text-2">
          <span className={clsx("min-w-0 flex-1 truncate", state === "failed" && "text-failed-text")}>
            {result
              ? oneLine(withoutMarks(result.slice(0, RESULT_CHARS)))
              : state === "running"
                ? "Running"
                : "No result"}
          </span>
          {/* The log names a sub-run before the server has its row. */}
          {child && end && <SubRunFigures runId={child} />}
        </p>
      }
    >
      <div className="border-t border-border">
        {child ? (
          <NestedTranscript runId={child} />
        ) : (
          <p className="p-2 text-12 text-text-3">The log does not name the sub-run.</p>
        )}
      </div>
    </Fold>
  );
}

/** How much of a result is looked at for its line. */
const RESULT_CHARS = 2_000;

const textOf = (result: unknown) =>
  typeof result === "string" ? result : result == null ? "" : JSON.stringify(result);

function stateOf({ end }: SubRunRow, isCancelled: boolean, isRunActive: boolean): CallState {
  if (isCancelled) return "cancelled";
  if (end) return end.payload.error == null ? "done" : "failed";
  return isRunActive ? "running" : "no-result";
}

/** The size of a sub-run. */
function SubRunFigures({ runId }: { runId: string }) {
  const run = useQuery(runQuery(runId)).data;
  const cost = run && costOf(run);
  if (!run) return null;
  return (
    <span className="shrink-0 text-text-3 tabular-nums">
      {run.tool_calls} {run.tool_calls === 1 ? "call" : "calls"}
      {cost && ` · ${cost.short}`}
    </span>
  );
}

const RETRY_MS = 1_000;
/** How often a sub-run that the server does not have is requested once its run has ended. */
const MAX_MISSING = 5;

const isMissing = (error: unknown) => error instanceof Problem && error.status === 404;

/**
 * The transcript of a sub-run, page by page. The log names a sub-run before the server has its row, so a sub-run that is
 * missing is requested again: as long as its run is active, and then a few times.
 */
function NestedTranscript({ runId }: { runId: string }) {
  const { isRunActive } = useTranscriptContext();
  const query = useQuery({
    ...runQuery(runId),
    refetchInterval: ({ state }) => {
      if (state.data || !state.error) return false;
      const isExpected = isMissing(state.error) && (isRunActive || state.errorUpdateCount < MAX_MISSING);
      return (isExpected || isTransient(state.error)) && RETRY_MS;
    },
  });
  if (query.isPending) return <Loading subject="the sub-run" />;
  if (query.isError && isRunActive && isMissing(query.error))
    return (
      <p role="status" className="p-2 text-12 text-text-3">
        The sub-run is starting.
      </p>
    );
  if (query.isError) return <ErrorMessage error={query.error} onRetry={() => void query.refetch()} />;
  return (
    <>
      <div className="flex items-center gap-2 px-3 py-1 text-12 text-text-2">
        {(query.data.status === "waiting" || query.data.status === "queued") && (
          <StatusBadge status={query.data.status} />
        )}
        <span className="min-w-0 flex-1 truncate">{query.data.task}</span>
        <span className="shrink-0">
          <RunLink id={runId}>Open run</RunLink>
        </span>
      </div>
      <NestedRows run={query.data} />
    </>
  );
}

function NestedRows({ run }: { run: RunDetail }) {
  const outer = useTranscriptContext();
  const isRunActive = isActive(run.status);
  const log = useLog(run.id, run.last_seq, isRunActive);
  const [pages, setPages] = useRowState("pages", 1);
  const folds = useFolds();
  const last = Math.min(log.lastSeq, pages * PAGE_EVENTS);
  const retry = useLoadRange(log, 1, last);
  const isSingle = isSingleStep(run);
  const cancelReasonText = cancelReason(run);
  const context = useMemo(
    () => ({
      log,
      isRunActive,
      cancelReason: cancelReasonText,
      pendingCallIds: outer.pendingCallIds,
      onToggle: folds.setOpen,
      onSelect: undefined,
      onFork: undefined,
    }),
    [log, isRunActive, cancelReasonText, outer.pendingCallIds, folds.setOpen],
  );
  const loadedPages = Array.from({ length: last ? pageOf(last) + 1 : 0 }, (_, number) => log.page(number));
  return (
    <TranscriptContext value={context}>
      <ol className="ml-3 border-l border-border">
        {loadedPages
          .flatMap((page) => (page ? [...rowsOf(page, isSingle).values()] : []))
          .map((row) => (
            <RowView
              key={row.seq}
              row={row}
              open={folds.isOpen(row)}
              openInside={openInside(row, folds)}
              isSelected={false}
            />
          ))}
      </ol>
      {last === log.lastSeq && <StreamingRows log={log} />}
      {log.problem ? (
        <ErrorMessage error={log.problem} onRetry={retry} />
      ) : (
        loadedPages.some((page) => !page) && <Loading subject="its transcript" />
      )}
      {last < log.lastSeq && (
        <div className="p-2">
          <Button onClick={() => setPages((before) => before + 1)}>
            Show more ({(log.lastSeq - last).toLocaleString("en")} events)
          </Button>
        </div>
      )}
      {log.lastSeq === 0 && <p className="p-2 text-xs text-text-3">No events yet.</p>}
    </TranscriptContext>
  );
}
