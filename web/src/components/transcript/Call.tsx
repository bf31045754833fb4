import clsx from "clsx";
import type { ReactNode } from "react";
import type { EventOf } from "@/api";
import { Duration } from "@/components/ui/Time";
import { isAnswerable } from "@/views/pendingCalls";
import { isCancellation } from "@/views/detail";
import { headline } from "@/views/headline";
import { noteOf } from "@/views/jobNotes";
import { isText, oneLine } from "@/views/json";
import { type CallRow, isFailed, type ResultRow } from "@/views/rowTypes";
import { formatDuration } from "@/views/time";
import { CallBody, ResultBody } from "./CallBody";
import { Fold } from "./Fold";
import { NoteBody } from "./NoteBody";
import { Question } from "./Question";
import { type TranscriptContextValue, useTranscriptContext } from "./transcriptContext";
import { fidelityLabel } from "./labels";

/** A tool call with its result. */
export function Call({ row, open }: { row: CallRow; open: boolean }) {
  const context = useTranscriptContext();
  const { call, result } = row;
  const awaits = call.payload.awaits;
  const isPending = awaits != null && !result && context.isRunActive;
  const note = awaits == null ? noteOf(call.payload.name, call.payload.input) : null;
  return (
    <>
      <Fold
        isFramed
        open={open}
        onToggle={() => context.onToggle(row.seq, !open)}
        title={fidelityLabel(call.payload.fidelity)}
        head={
          <CallHead
            name={note?.label ?? call.payload.name}
            summary={note?.headline ?? summaryOf(row)}
            isProse={note !== null}
            state={stateOf(row, context)}
          >
            {isPending && <span className="rounded bg-waiting-back px-1.5 text-waiting">waiting</span>}
            {result ? (
              <ResultFacts result={result} />
            ) : (
              context.isRunActive && !isPending && <Duration from={call.timestamp} to={null} ms={null} />
            )}
          </CallHead>
        }
      >
        {note ? <NoteBody call={call} /> : <CallBody call={call} result={result} />}
      </Fold>
      {isPending && <CallQuestion call={call} isInStrip={context.pendingCallIds.has(call.payload.call_id)} />}
    </>
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
  if (isInStrip)
    return (
      <p className="py-1 text-xs text-waiting">
        {isAnswerable(awaits?.kind ?? "") ? "Waiting for your answer above." : "Waiting. The reason is above."}
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
  return (
    <Fold
      isFramed
      open={open}
      onToggle={() => onToggle(row.seq, !open)}
      title={fidelityLabel(payload.fidelity)}
      head={
        <CallHead
          name={payload.name}
          summary="result of an earlier call"
          state={isFailed(row.result) ? "failed" : "done"}
        >
          <ResultFacts result={row.result} />
        </CallHead>
      }
    >
      <div className="border-t border-line p-2">
        <ResultBody result={row.result} input={null} />
      </div>
    </Fold>
  );
}

type State = "done" | "failed" | "cancelled" | "running" | "waiting" | "no-result";
const MARKS: Record<State, { sign: string; className: string; word: string }> = {
  done: { sign: "✓", className: "text-done", word: "done" },
  failed: { sign: "✗", className: "text-failed", word: "failed" },
  cancelled: { sign: "■", className: "text-quiet", word: "cancelled" },
  running: { sign: "●", className: "animate-pulse text-running", word: "running" },
  waiting: { sign: "?", className: "text-waiting", word: "waiting" },
  "no-result": { sign: "–", className: "text-ink-faint", word: "no result" },
};

function stateOf({ call, result }: CallRow, { isRunActive, cancelReason: cancelled }: TranscriptContextValue): State {
  if (isCancellation(cancelled, result?.payload.error)) return "cancelled";
  if (result) return isFailed(result) ? "failed" : "done";
  if (!isRunActive) return "no-result";
  return call.payload.awaits ? "waiting" : "running";
}

function CallHead({
  name,
  summary,
  isProse = false,
  state,
  children,
}: {
  name: string;
  summary: string;
  /** Whether the summary is a sentence, not code. */
  isProse?: boolean;
  state: State;
  children: ReactNode;
}) {
  const mark = MARKS[state];
  return (
    <>
      <span role="img" aria-label={mark.word} className={clsx("w-3 shrink-0 text-center text-xs", mark.className)}>
        {mark.sign}
      </span>
      <span className="max-w-[45%] shrink-0 truncate text-xs font-semibold">{name}</span>
      <span className={clsx("min-w-0 flex-1 truncate text-xs text-ink-dull", !isProse && "font-mono")}>{summary}</span>
      <span className="flex shrink-0 gap-2 text-xs text-ink-faint tabular-nums">{children}</span>
    </>
  );
}

function ResultFacts({ result }: { result: EventOf<"tool.result"> }) {
  const { exit_code: code, duration_ms: durationMs } = result.payload;
  return (
    <>
      {code != null && code !== 0 && <span className="text-failed">exit {code}</span>}
      {durationMs != null && <span>{formatDuration(durationMs)}</span>}
    </>
  );
}
