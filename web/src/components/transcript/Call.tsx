import clsx from "clsx";
import type { ReactNode } from "react";
import type { EventOf } from "@/api";
import { Took } from "@/components/ui/Time";
import { isAnswerable } from "@/views/pendingCalls";
import { isOfCancel } from "@/views/detail";
import { headline } from "@/views/headline";
import { isText, oneLine } from "@/views/json";
import { type CallRow, isFailed, type ResultRow } from "@/views/transcriptRows";
import { duration } from "@/views/time";
import { CallBody, ResultBody } from "./CallBody";
import { Fold } from "./Fold";
import { Question } from "./Question";
import { type Reading, useReading } from "./transcriptContext";
import { vouched } from "./labels";

/** A tool call with its result. */
export function Call({ row, open }: { row: CallRow; open: boolean }) {
  const reading = useReading();
  const { call, result } = row;
  const awaits = call.payload.awaits;
  const isAsked = awaits != null && !result && reading.goesOn;
  return (
    <>
      <Fold
        framed
        open={open}
        onToggle={() => reading.onToggle(row.seq, !open)}
        title={vouched(call.payload.fidelity)}
        head={
          <Head name={call.payload.name} about={aboutOf(row)} state={stateOf(row, reading)}>
            {isAsked && <span className="rounded bg-waiting-back px-1.5 text-waiting">waits</span>}
            {result ? (
              <Taken result={result} />
            ) : (
              reading.goesOn && !isAsked && <Took from={call.timestamp} to={null} ms={null} />
            )}
          </Head>
        }
      >
        <CallBody call={call} result={result} />
      </Fold>
      {isAsked && <Asked call={call} isInStrip={reading.asked.has(call.payload.call_id)} />}
    </>
  );
}

/** A one-line summary of a call; for a question also the answer. */
function aboutOf({ call, result }: CallRow): string {
  const answer = call.payload.awaits && result?.payload.error == null ? result?.payload.output : null;
  return `${headline(call.payload.input)}${isText(answer) ? ` → ${oneLine(answer)}` : ""}`;
}

/**
 * A question where it was asked. While the strip above the transcript lists the question, the form is there instead.
 */
function Asked({ call, isInStrip }: { call: EventOf<"tool.call">; isInStrip: boolean }) {
  const { log } = useReading();
  const { name, call_id, input, awaits } = call.payload;
  if (isInStrip)
    return (
      <p className="py-1 text-xs text-waiting">
        {isAnswerable(awaits?.kind ?? "") ? "Waiting for your answer, above." : "Waiting; the reason is above."}
      </p>
    );
  const asked = {
    run_id: log.runId,
    call_id,
    name,
    input,
    kind: awaits?.kind ?? "",
    until: awaits?.until ?? null,
    answered: false,
  };
  return <Question asked={asked} />;
}

/** The result of a call on an earlier page. */
export function Result({ row, open }: { row: ResultRow; open: boolean }) {
  const { onToggle } = useReading();
  const { payload } = row.result;
  return (
    <Fold
      framed
      open={open}
      onToggle={() => onToggle(row.seq, !open)}
      title={vouched(payload.fidelity)}
      head={
        <Head name={payload.name} about="result of a call further up" state={isFailed(row.result) ? "failed" : "done"}>
          <Taken result={row.result} />
        </Head>
      }
    >
      <div className="border-t border-line p-2">
        <ResultBody result={row.result} input={null} />
      </div>
    </Fold>
  );
}

type State = "done" | "failed" | "cancelled" | "running" | "waiting" | "lost";
const MARKS: Record<State, { sign: string; look: string; word: string }> = {
  done: { sign: "✓", look: "text-done", word: "done" },
  failed: { sign: "✗", look: "text-failed", word: "failed" },
  cancelled: { sign: "■", look: "text-quiet", word: "cancelled" },
  running: { sign: "●", look: "animate-pulse text-running", word: "running" },
  waiting: { sign: "?", look: "text-waiting", word: "waiting" },
  lost: { sign: "–", look: "text-ink-faint", word: "no result" },
};

function stateOf({ call, result }: CallRow, { goesOn, cancelled }: Reading): State {
  if (isOfCancel(cancelled, result?.payload.error)) return "cancelled";
  if (result) return isFailed(result) ? "failed" : "done";
  if (!goesOn) return "lost";
  return call.payload.awaits ? "waiting" : "running";
}

function Head({ name, about, state, children }: { name: string; about: string; state: State; children: ReactNode }) {
  const mark = MARKS[state];
  return (
    <>
      <span role="img" aria-label={mark.word} className={clsx("w-3 shrink-0 text-center text-xs", mark.look)}>
        {mark.sign}
      </span>
      <span className="max-w-[45%] shrink-0 truncate text-xs font-semibold">{name}</span>
      <span className="min-w-0 flex-1 truncate font-mono text-xs text-ink-dull">{about}</span>
      <span className="flex shrink-0 gap-2 text-xs text-ink-faint tabular-nums">{children}</span>
    </>
  );
}

function Taken({ result }: { result: EventOf<"tool.result"> }) {
  const { exit_code: code, duration_ms: took } = result.payload;
  return (
    <>
      {code != null && code !== 0 && <span className="text-failed">exit {code}</span>}
      {took != null && <span>{duration(took)}</span>}
    </>
  );
}
