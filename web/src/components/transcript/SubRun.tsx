import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { useMemo, useState } from "react";
import { PAGE_EVENTS, pageOf, runQuery, useLog, type RunDetail } from "@/api";
import { RunLink } from "@/components/detail/links";
import { StatusBadge } from "@/components/ui/Badge";
import { Button } from "@/components/ui/Button";
import { Duration } from "@/components/ui/Time";
import { Loading } from "@/components/ui/EmptyState";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { cancelReason, isActive, isCancellation } from "@/views/detail";
import { headline } from "@/views/headline";
import type { SubRunRow } from "@/views/rowTypes";
import { rowsOf } from "@/views/transcriptRows";
import { Fold } from "./Fold";
import { useFolds } from "./useFolds";
import { TranscriptContext, useTranscriptContext } from "./transcriptContext";
import { RowView } from "./Row";
import { StreamingRows } from "./StreamingRows";
import { useLoadRange } from "./useLoadRange";
import { isSingleStep } from "./labels";

/** A sub-run; its transcript expands inside of this one. */
export function SubRun({ row, open }: { row: SubRunRow; open: boolean }) {
  const { onToggle, cancelReason: cancelReasonText } = useTranscriptContext();
  const { call, end } = row;
  const isCancelled = isCancellation(cancelReasonText, end?.payload.error, end?.payload.error_code);
  const child = call.child_run_id;
  // An agent's helper has a name of its own; another worker goes by the worker's name.
  const name = (call.payload.kind !== "agent" && call.payload.worker) || call.payload.name;
  const summary = headline(call.payload.input);
  const head = (
    <>
      <BranchIcon />
      <span className="max-w-[45%] shrink-0 truncate text-xs font-semibold">{name}</span>
      <span className="min-w-0 flex-1 truncate text-xs text-ink-dull">
        {summary || call.path.split(".").join(" › ")}
      </span>
      {end?.payload.error != null && (
        <span className={clsx("min-w-0 max-w-[40%] truncate text-xs", isCancelled ? "text-quiet" : "text-failed")}>
          {end.payload.error}
        </span>
      )}
      <SubRunState row={row} isCancelled={isCancelled} />
    </>
  );
  return (
    <Fold
      isFramed
      open={open}
      onToggle={() => onToggle(row.seq, !open)}
      head={head}
      title={`Sub-run${child ? ` ${child}` : ""}`}
    >
      <div className="border-t border-line">
        {child ? (
          <NestedTranscript runId={child} />
        ) : (
          <p className="p-2 text-xs text-ink-faint">The log does not name the sub-run.</p>
        )}
      </div>
    </Fold>
  );
}

const BranchIcon = () => (
  <svg aria-hidden viewBox="0 0 12 12" className="size-3 shrink-0 self-center fill-none stroke-ink-faint stroke-[1.3]">
    <path d="M2.5 1v5.5a2 2 0 0 0 2 2H10M7.5 6l2.5 2.5L7.5 11" />
  </svg>
);

function SubRunState({ row: { call, end }, isCancelled }: { row: SubRunRow; isCancelled: boolean }) {
  const context = useTranscriptContext();
  const status = end
    ? end.payload.error == null
      ? "done"
      : isCancelled
        ? "cancelled"
        : "failed"
    : context.isRunActive
      ? "running"
      : null;
  return (
    <span className="flex shrink-0 items-baseline gap-2 text-xs text-ink-faint tabular-nums">
      {(end || context.isRunActive) && (
        <Duration from={call.timestamp} to={end?.timestamp ?? null} ms={end?.payload.duration_ms ?? null} />
      )}
      {status && <StatusBadge status={status} />}
    </span>
  );
}

/** The transcript of a sub-run, page by page. */
function NestedTranscript({ runId }: { runId: string }) {
  const query = useQuery(runQuery(runId));
  if (query.isPending) return <Loading subject="the sub-run" />;
  if (query.isError) return <ErrorMessage error={query.error} onRetry={() => void query.refetch()} />;
  return (
    <>
      <div className="flex items-center gap-2 px-3 py-1 text-xs text-ink-dull">
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
  const [pages, setPages] = useState(1);
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
    }),
    [log, isRunActive, cancelReasonText, outer.pendingCallIds, folds.setOpen],
  );
  const loadedPages = Array.from({ length: last ? pageOf(last) + 1 : 0 }, (_, number) => log.page(number));
  return (
    <TranscriptContext value={context}>
      <ol className="ml-2 border-l border-line">
        {loadedPages
          .flatMap((page) => (page ? [...rowsOf(page, isSingle).values()] : []))
          .map((row) => (
            <RowView key={row.seq} row={row} open={folds.isOpen(row)} isSelected={false} />
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
          <Button onClick={() => setPages(pages + 1)}>
            Show more ({(log.lastSeq - last).toLocaleString("en")} events)
          </Button>
        </div>
      )}
      {log.lastSeq === 0 && <p className="p-2 text-xs text-ink-faint">No events yet.</p>}
    </TranscriptContext>
  );
}
