import clsx from "clsx";
import type { ReactNode } from "react";
import type { EventOf } from "@/api";
import { Icon, type IconName } from "@/components/ui/Icon";
import { Duration } from "@/components/ui/Time";
import { useCanAct } from "@/useCanAct";
import { isAnswerable } from "@/views/pendingCalls";
import { isCancellation } from "@/views/detail";
import { changesOf, countOf } from "@/views/diff";
import { baseName, headline } from "@/views/headline";
import { noteOf } from "@/views/jobNotes";
import { isText, oneLine } from "@/views/json";
import { type CallRow, isFailed, type ReadsRow, type ResultRow } from "@/views/rowTypes";
import { progressText, tasksOf } from "@/views/taskList";
import { formatDuration } from "@/views/time";
import { toolIcon } from "@/views/toolIcons";
import { CallBody, ResultBody } from "./CallBody";
import { Fold } from "./Fold";
import { RowStatePart } from "./rowState";
import { NoteBody } from "./NoteBody";
import { Question } from "./Question";
import { ProgressBar, TaskList } from "./TaskList";
import { type TranscriptContextValue, useTranscriptContext } from "./transcriptContext";
import { fidelityLabel } from "./labels";
import { insideKey } from "./useFolds";

interface CallProps {
  row: CallRow;
  open: boolean;
  /** Whether the call is shown inside of another row. */
  isInside?: boolean;
}

/** A tool call with its result. */
export function Call({ row, open, isInside = false }: CallProps) {
  const context = useTranscriptContext();
  const { call, result } = row;
  const { name, input, awaits } = call.payload;
  const isPending = awaits != null && !result && context.isRunActive;
  const note = awaits == null ? noteOf(name, input) : null;
  const tasks = tasksOf(name, input);
  const state = stateOf(row, context);
  return (
    <>
      <Fold
        isFramed
        open={open}
        isFailed={state === "failed"}
        onToggle={() => context.onToggle(isInside ? insideKey(row.seq) : row.seq, !open)}
        title={fidelityLabel(call.payload.fidelity)}
        head={
          <CallHead
            name={note?.label ?? (tasks ? "Plan" : name)}
            icon={toolIcon(name)}
            summary={note?.headline ?? (tasks ? progressText(tasks) : summaryOf(row))}
            isProse={note !== null || tasks !== null}
            state={state}
          >
            {tasks && <ProgressBar tasks={tasks} />}
            {isPending && <span className="rounded-1 bg-waiting-bg px-1.5 text-waiting-text">waiting</span>}
            {result ? (
              <ResultFacts row={row} result={result} />
            ) : (
              context.isRunActive && !isPending && <Duration from={call.timestamp} to={null} ms={null} />
            )}
          </CallHead>
        }
      >
        {tasks && !(result && isFailed(result)) ? (
          <TaskList tasks={tasks} />
        ) : note ? (
          <NoteBody call={call} />
        ) : (
          <CallBody call={call} result={result} />
        )}
      </Fold>
      {isPending && <CallQuestion call={call} isInStrip={context.pendingCallIds.has(call.payload.call_id)} />}
    </>
  );
}

/** Calls that only read, on one line. Opened, each call is a line. */
export function Reads({ row, open, openInside }: { row: ReadsRow; open: boolean; openInside: ReadonlySet<number> }) {
  const context = useTranscriptContext();
  const names = [...new Set(row.calls.map(({ call }) => call.payload.name))];
  const files = row.calls.map(({ call }) => baseName(headline(call.payload.input)));
  const ms = row.calls.reduce((sum, { result }) => sum + (result?.payload.duration_ms ?? 0), 0);
  const isRunning = context.isRunActive && row.calls.some(({ result }) => !result);
  return (
    <Fold
      isFramed
      open={open}
      onToggle={() => context.onToggle(row.seq, !open)}
      title={files.join("\n")}
      head={
        <CallHead
          name={names.join(", ")}
          icon={names.length === 1 ? toolIcon(names[0] ?? "") : "file"}
          summary={`${row.calls.length} calls · ${files.join(", ")}`}
          state={isRunning ? "running" : "done"}
        >
          {ms > 0 && <span>{formatDuration(ms)}</span>}
        </CallHead>
      }
    >
      <ol className="border-t border-border py-0.5">
        {row.calls.map((call) => (
          <li key={call.seq} data-seq={call.seq === row.seq ? undefined : call.seq} className="px-1">
            <RowStatePart name={call.seq}>
              <Call row={call} open={openInside.has(call.seq)} isInside />
            </RowStatePart>
          </li>
        ))}
      </ol>
    </Fold>
  );
}

/** A one-line summary of a call; for a question also the answer. */
function summaryOf({ call, result }: CallRow): string {
  const answer = call.payload.awaits && result?.payload.error == null ? result?.payload.output : null;
  return `${headline(call.payload.input)}${isText(answer) ? ` → ${oneLine(answer)}` : ""}`;
}

/**
 * A question where it was asked. While the strip above the transcript lists the question, the form is there instead.
 */
function CallQuestion({ call, isInStrip }: { call: EventOf<"tool.call">; isInStrip: boolean }) {
  const { log } = useTranscriptContext();
  const { name, call_id, input, awaits } = call.payload;
  const canAct = useCanAct();
  if (isInStrip)
    return (
      <p className="py-1 pl-2 text-12 text-waiting-text">
        {isAnswerable(awaits?.kind ?? "")
          ? `Waiting for ${canAct ? "your" : "an"} answer above.`
          : "Waiting. The reason is above."}
      </p>
    );
  const pendingCall = {
    run_id: log.runId,
    call_id,
    name,
    input,
    kind: awaits?.kind ?? "",
    until: awaits?.until ?? null,
    answered: false,
  };
  return <Question call={pendingCall} />;
}

/** The result of a call on an earlier page. */
export function Result({ row, open }: { row: ResultRow; open: boolean }) {
  const { onToggle } = useTranscriptContext();
  const { payload } = row.result;
  const state = isFailed(row.result) ? "failed" : "done";
  return (
    <Fold
      isFramed
      open={open}
      isFailed={state === "failed"}
      onToggle={() => onToggle(row.seq, !open)}
      title={fidelityLabel(payload.fidelity)}
      head={
        <CallHead
          name={payload.name}
          icon={toolIcon(payload.name)}
          summary="result of an earlier call"
          isProse
          state={state}
        >
          <ResultFacts row={null} result={row.result} />
        </CallHead>
      }
    >
      <ResultBody result={row.result} input={null} name={payload.name} />
    </Fold>
  );
}

export type CallState = "done" | "failed" | "cancelled" | "running" | "waiting" | "no-result";
/** The states that have an icon of their own; all others have the icon of the tool. */
const STATE_ICONS: Partial<Record<CallState, { icon: IconName; className: string }>> = {
  failed: { icon: "failed", className: "text-failed" },
  cancelled: { icon: "cancelled", className: "text-queued" },
  running: { icon: "running", className: "spin text-running" },
  waiting: { icon: "waiting", className: "text-waiting" },
};

function stateOf({ call, result }: CallRow, { isRunActive, cancelReason }: TranscriptContextValue): CallState {
  if (isCancellation(cancelReason, result?.payload.error)) return "cancelled";
  if (result) return isFailed(result) ? "failed" : "done";
  if (!isRunActive) return "no-result";
  return call.payload.awaits ? "waiting" : "running";
}

interface CallHeadProps {
  name: string;
  icon: IconName;
  summary: string;
  /** Whether the summary is a sentence, not code. */
  isProse?: boolean;
  state: CallState;
  children: ReactNode;
}

export function CallHead({ name, icon, summary, isProse = false, state, children }: CallHeadProps) {
  const own = STATE_ICONS[state];
  return (
    <>
      <Icon
        name={own?.icon ?? icon}
        label={state.replace("-", " ")}
        className={clsx("size-4", own?.className ?? "text-icon")}
      />
      <span className="max-w-[45%] shrink-0 truncate font-medium">{name}</span>
      <span className={clsx("min-w-0 flex-1 truncate text-text-2", isProse ? "" : "font-mono text-[11.5px]")}>
        {summary}
      </span>
      <span className="flex shrink-0 items-center gap-2.5 text-12 text-text-3 tabular-nums">{children}</span>
    </>
  );
}

function ResultFacts({ row, result }: { row: CallRow | null; result: EventOf<"tool.result"> }) {
  const { exit_code: code, duration_ms: durationMs, files } = result.payload;
  const changes = files?.length ? changesOf(row?.call.payload.input, files) : [];
  const [added, removed] = (["added", "removed"] as const).map((kind) =>
    changes.reduce((sum, { lines }) => sum + countOf(lines, kind), 0),
  );
  return (
    <>
      {changes.length > 0 && (
        <span>
          <span className="text-done-text">+{added}</span> <span className="text-failed-text">−{removed}</span>
        </span>
      )}
      {code != null && code !== 0 && (
        <span className="rounded-1 px-1.5 text-11 leading-[18px] font-medium text-failed-text ring-1 ring-current ring-inset">
          exit {code}
        </span>
      )}
      {durationMs != null && <span>{formatDuration(durationMs)}</span>}
    </>
  );
}
