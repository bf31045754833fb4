import clsx from "clsx";
import type { ReactNode } from "react";
import type { LogEvent } from "@/api";
import { asText, isRecord } from "@/views/json";
import { isCancellation } from "@/views/detail";
import type { AttemptRow, OutcomeRow, StepRow, UnknownEventRow } from "@/views/rowTypes";
import { formatDuration } from "@/views/time";
import { TruncationNotice } from "./TruncationNotice";
import { Fold } from "./Fold";
import { useTranscriptContext, useFullEvent } from "./transcriptContext";
import { Text } from "./Text";
import { outcomeLabel } from "./labels";

const FAILED = { sign: "✗", className: "text-failed" };
const CANCELLED = { sign: "■", className: "text-quiet" };

interface LineProps {
  seq: number;
  open: boolean;
  className?: string;
  sign: string;
  children: ReactNode;
  /** Return the body of the line; the line cannot be expanded if it is empty. */
  event: LogEvent;
  bodyOf: (event: LogEvent) => unknown;
}

/** A row of one line that may have a body. */
function Line({ seq, open, className, sign, children, event, bodyOf }: LineProps) {
  const { onToggle } = useTranscriptContext();
  const head = (
    <>
      <span aria-hidden className={clsx("w-3 shrink-0 text-center text-xs", className)}>
        {sign}
      </span>
      <span className={clsx("min-w-0 text-xs [overflow-wrap:anywhere]", className)}>{children}</span>
    </>
  );
  if (isEmpty(bodyOf(event))) return <p className="flex items-baseline gap-1.5 py-0.5 pl-[18px]">{head}</p>;
  return (
    <Fold open={open} onToggle={() => onToggle(seq, !open)} head={head}>
      <LineBody event={event} bodyOf={bodyOf} />
    </Fold>
  );
}

function LineBody({ event, bodyOf }: Pick<LineProps, "event" | "bodyOf">) {
  const full = useFullEvent(event, true);
  return (
    <div className="ml-[34px] rounded bg-app-side px-2 py-1">
      <Text text={asText(bodyOf(full.event))} />
      <TruncationNotice full={full} />
    </div>
  );
}

const isEmpty = (value: unknown) =>
  value == null || value === "" || (isRecord(value) && Object.keys(value).length === 0);

/** The start of a step, its end, or both. */
export function Step({ row, open }: { row: StepRow; open: boolean }) {
  const { cancelReason } = useTranscriptContext();
  const { start, end } = row;
  const step = start ?? end;
  if (!step) return null;
  const { kind, try: number } = step.payload;
  const error = end?.payload.error;
  const failureLook =
    error == null ? null : isCancellation(cancelReason, error, end?.payload.error_code) ? CANCELLED : FAILED;
  const { sign, className } = failureLook ?? { sign: end ? "✓" : "•", className: "text-ink-faint" };
  const facts = [
    start && kind.replaceAll("_", " "),
    number > 1 && `try ${number}`,
    step.iteration > 0 && `round ${step.iteration + 1}`,
    end?.payload.duration_ms != null && formatDuration(end.payload.duration_ms),
  ];
  return (
    <Line seq={row.seq} open={open} sign={sign} className={className} event={end ?? step} bodyOf={resultOf}>
      {step.path
        .split(".")
        .slice(0, -1)
        .map((outer) => `${outer} › `)}
      <span className={clsx(start && "font-semibold", start && error == null && "text-ink")}>{step.payload.name}</span>
      {facts.filter(Boolean).map((fact) => ` · ${String(fact)}`)}
      {error != null && `: ${error}`}
      {/* A cancelled step has no error code of its own. */}
      {end?.payload.error_code != null && failureLook !== CANCELLED && (
        <span className="ml-1.5 font-mono">{end.payload.error_code}</span>
      )}
    </Line>
  );
}

/** Return the result of a step or run, without an exit code of 0. */
function resultOf(event: LogEvent): unknown {
  const result = "result" in event.payload ? event.payload.result : null;
  if (!isRecord(result)) return result;
  const { exit_code: code, ...rest } = result;
  return code === 0 || Object.keys(rest).length === 0 ? rest : result;
}

/** The start of a run or of a later attempt. */
export function Attempt({ row, open }: { row: AttemptRow; open: boolean }) {
  const { attempt, host } = row.start.payload;
  const bodyOf = (event: LogEvent) => (event.type === "run.started" ? event.payload.input : null);
  return (
    <Line
      seq={row.seq}
      open={open}
      sign={attempt > 1 ? "↻" : ""}
      className={attempt > 1 ? "text-running" : "text-ink-dull"}
      event={row.start}
      bodyOf={bodyOf}
    >
      {attempt > 1 ? `Attempt ${attempt} on ${host}` : "Input"}
    </Line>
  );
}

const OUTCOME_LOOKS: Record<string, { sign: string; className: string }> = {
  completed: { sign: "✓", className: "text-done" },
  cancelled: CANCELLED,
};

/** The outcome of the run. */
export function Outcome({ row, open }: { row: OutcomeRow; open: boolean }) {
  const { status, error, duration_ms: durationMs } = row.end.payload;
  const { sign, className } = OUTCOME_LOOKS[status] ?? FAILED;
  return (
    <Line seq={row.seq} open={open} sign={sign} className={className} event={row.end} bodyOf={resultOf}>
      <strong className="font-semibold">{outcomeLabel(status)}</strong>
      {durationMs != null && ` after ${formatDuration(durationMs)}`}
      {error && `: ${error.message}`}
      {error && <span className="ml-1.5 font-mono">{error.code}</span>}
    </Line>
  );
}

/** An event of an unknown type or a damaged one, shown as JSON. */
export function UnknownEvent({ row, open }: { row: UnknownEventRow; open: boolean }) {
  return (
    <Line seq={row.seq} open={open} sign="?" className="text-running" event={row.event} bodyOf={payloadOrEvent}>
      Unknown event type: <span className="font-mono">{asText(row.event.type)}</span>
    </Line>
  );
}

/** Return the payload, or the whole event if a damaged log has none. */
const payloadOrEvent = (event: { payload?: unknown }): unknown => event.payload ?? event;
