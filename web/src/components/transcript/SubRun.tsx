import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { useMemo, useState } from "react";
import { PAGE, pageOf, runQuery, useLog, type RunDetail } from "@/api";
import { RunLink } from "@/components/detail/links";
import { StatusBadge } from "@/components/ui/Badge";
import { Button } from "@/components/ui/Button";
import { Took } from "@/components/ui/Time";
import { Loading } from "@/components/ui/EmptyState";
import { Trouble } from "@/components/ui/ErrorMessage";
import { cancelReason, goesOn, isOfCancel } from "@/views/detail";
import { headline } from "@/views/headline";
import type { SubRunRow } from "@/views/transcriptRows";
import { rowsOf } from "@/views/transcript";
import { Fold } from "./Fold";
import { useFolds } from "./useFolds";
import { ReadingContext, useReading } from "./transcriptContext";
import { RowView } from "./Row";
import { TypingRows } from "./StreamingRows";
import { useWanted } from "./useLoadRange";
import { isBare } from "./labels";

/** A sub-run; its transcript expands inside of this one. */
export function SubRun({ row, open }: { row: SubRunRow; open: boolean }) {
  const { onToggle, cancelled } = useReading();
  const { call, end } = row;
  const isCancelled = isOfCancel(cancelled, end?.payload.error, end?.payload.error_code);
  const child = call.child_run_id;
  // An agent's helper has a name of its own; another worker goes by the worker's name.
  const name = (call.payload.kind !== "agent" && call.payload.worker) || call.payload.name;
  const about = headline(call.payload.input);
  const head = (
    <>
      <Branch />
      <span className="max-w-[45%] shrink-0 truncate text-xs font-semibold">{name}</span>
      <span className="min-w-0 flex-1 truncate text-xs text-ink-dull">{about || call.path.split(".").join(" › ")}</span>
      {end?.payload.error != null && (
        <span className={clsx("min-w-0 max-w-[40%] truncate text-xs", isCancelled ? "text-quiet" : "text-failed")}>
          {end.payload.error}
        </span>
      )}
      <State row={row} isCancelled={isCancelled} />
    </>
  );
  return (
    <Fold
      framed
      open={open}
      onToggle={() => onToggle(row.seq, !open)}
      head={head}
      title={`Sub-run${child ? ` ${child}` : ""}`}
    >
      <div className="border-t border-line">
        {child ? (
          <Nested runId={child} />
        ) : (
          <p className="p-2 text-xs text-ink-faint">Its run is not named in the log.</p>
        )}
      </div>
    </Fold>
  );
}

const Branch = () => (
  <svg aria-hidden viewBox="0 0 12 12" className="size-3 shrink-0 self-center fill-none stroke-ink-faint stroke-[1.3]">
    <path d="M2.5 1v5.5a2 2 0 0 0 2 2H10M7.5 6l2.5 2.5L7.5 11" />
  </svg>
);

function State({ row: { call, end }, isCancelled }: { row: SubRunRow; isCancelled: boolean }) {
  const reading = useReading();
  const status = end
    ? end.payload.error == null
      ? "done"
      : isCancelled
        ? "cancelled"
        : "failed"
    : reading.goesOn
      ? "running"
      : null;
  return (
    <span className="flex shrink-0 items-baseline gap-2 text-xs text-ink-faint tabular-nums">
      {(end || reading.goesOn) && (
        <Took from={call.timestamp} to={end?.timestamp ?? null} ms={end?.payload.duration_ms ?? null} />
      )}
      {status && <StatusBadge status={status} />}
    </span>
  );
}

/** The transcript of a sub-run, page by page. */
function Nested({ runId }: { runId: string }) {
  const asked = useQuery(runQuery(runId));
  if (asked.isPending) return <Loading what="the sub-run" />;
  if (asked.isError) return <Trouble error={asked.error} onRetry={() => void asked.refetch()} />;
  return (
    <>
      <div className="flex items-center gap-2 px-3 py-1 text-xs text-ink-dull">
        {(asked.data.status === "waiting" || asked.data.status === "queued") && (
          <StatusBadge status={asked.data.status} />
        )}
        <span className="min-w-0 flex-1 truncate">{asked.data.task}</span>
        <span className="shrink-0">
          <RunLink id={runId}>Open run</RunLink>
        </span>
      </div>
      <NestedRows run={asked.data} />
    </>
  );
}

function NestedRows({ run }: { run: RunDetail }) {
  const outer = useReading();
  const isLive = goesOn(run.status);
  const log = useLog(run.id, run.last_seq, isLive);
  const [pages, setPages] = useState(1);
  const folds = useFolds();
  const last = Math.min(log.lastSeq, pages * PAGE);
  const retry = useWanted(log, 1, last);
  const bare = isBare(run);
  const cancelled = cancelReason(run);
  const reading = useMemo(
    () => ({ log, goesOn: isLive, cancelled, asked: outer.asked, onToggle: folds.setOpen, onChoose: undefined }),
    [log, isLive, cancelled, outer.asked, folds.setOpen],
  );
  const shown = Array.from({ length: last ? pageOf(last) + 1 : 0 }, (_, number) => log.page(number));
  return (
    <ReadingContext value={reading}>
      <ol className="ml-2 border-l border-line">
        {shown
          .flatMap((page) => (page ? [...rowsOf(page, bare).values()] : []))
          .map((row) => (
            <RowView key={row.seq} row={row} open={folds.isOpen(row)} chosen={false} />
          ))}
      </ol>
      {last === log.lastSeq && <TypingRows log={log} />}
      {log.problem ? (
        <Trouble error={log.problem} onRetry={retry} />
      ) : (
        shown.some((page) => !page) && <Loading what="its transcript" />
      )}
      {last < log.lastSeq && (
        <div className="p-2">
          <Button onClick={() => setPages(pages + 1)}>
            Show more ({(log.lastSeq - last).toLocaleString("en")} events)
          </Button>
        </div>
      )}
      {log.lastSeq === 0 && <p className="p-2 text-xs text-ink-faint">No events yet.</p>}
    </ReadingContext>
  );
}
