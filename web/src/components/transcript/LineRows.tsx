import clsx from "clsx";
import type { ReactNode } from "react";
import type { LogEvent } from "@/api";
import { Icon, type IconName } from "@/components/ui/Icon";
import { asText, isRecord } from "@/views/json";
import { isCancellation } from "@/views/detail";
import type { AttemptRow, OutcomeRow, StepRow, UnknownEventRow } from "@/views/rowTypes";
import { formatDuration } from "@/views/time";
import { TruncationNotice } from "./TruncationNotice";
import { Fold } from "./Fold";
import { useTranscriptContext, useFullEvent } from "./transcriptContext";
import { Text } from "./Text";
import { outcomeLabel } from "./labels";

const FAILED = { icon: "failed" as IconName, className: "text-failed-text" };
const CANCELLED = { icon: "cancelled" as IconName, className: "text-queued-text" };

interface LineProps {
  seq: number;
  open: boolean;
  className?: string;
  icon: IconName;
  children: ReactNode;
  /** Return the body of the line; the line cannot be expanded if it is empty. */
  event: LogEvent;
  bodyOf: (event: LogEvent) => unknown;
}

/** A row of one line that may have a body. */
function Line({ seq, open, className, icon, children, event, bodyOf }: LineProps) {
  const { onToggle } = useTranscriptContext();
  const head = (
    <>
      <Icon name={icon} className={clsx("size-4", className)} />
      <span className={clsx("min-w-0 py-1 text-12 [overflow-wrap:anywhere]", className)}>{children}</span>
    </>
  );
  if (isEmpty(bodyOf(event)))
    return <p className="flex min-h-7 items-center gap-1.5 px-2 pl-[26px] max-md:pl-2">{head}</p>;
  return (
    <Fold open={open} onToggle={() => onToggle(seq, !open)} head={head}>
      <LineBody event={event} bodyOf={bodyOf} />
    </Fold>
  );
}

function LineBody({ event, bodyOf }: Pick<LineProps, "event" | "bodyOf">) {
  const full = useFullEvent(event, true);
  return (
    <div className="ml-[26px] rounded-2 bg-bg-sunken px-3 py-1.5">
      <Text text={asText(bodyOf(full.event))} language={tracebackOf(full.event) ? null : "javascript"} />
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
  const { icon, className } = failureLook ?? { icon: iconOf(kind, end !== null), className: "text-text-3" };
  const facts = [
    start && kind.replaceAll("_", " "),
    number > 1 && `try ${number}`,
    step.iteration > 0 && `round ${step.iteration + 1}`,
    end?.payload.duration_ms != null && formatDuration(end.payload.duration_ms),
  ];
  return (
    <Line seq={row.seq} open={open} icon={icon} className={className} event={end ?? step} bodyOf={resultOf}>
      {step.path
        .split(".")
        .slice(0, -1)
        .map((outer) => `${outer} › `)}
      <span className={clsx(start && "font-semibold", start && error == null && "text-text")}>{step.payload.name}</span>
      {facts.filter(Boolean).map((fact) => ` · ${String(fact)}`)}
      {error != null && `: ${error}`}
      {/* A cancelled step has no error code of its own. */}
      {end?.payload.error_code != null && failureLook !== CANCELLED && (
        <span className="ml-1.5 font-mono">{end.payload.error_code}</span>
      )}
    </Line>
  );
}

/** The icon of a step: a command has one of its own. */
const iconOf = (kind: string, hasEnded: boolean): IconName =>
  hasEnded ? "done" : kind === "command" ? "term" : "dots";

/** Return the traceback of an exception in the code of a worker. */
function tracebackOf({ payload }: LogEvent): string | undefined {
  if ("traceback" in payload) return payload.traceback ?? undefined;
  return "status" in payload ? payload.error?.traceback : undefined;
}

/** Return the traceback or the result of a step or run, without an exit code of 0. */
function resultOf(event: LogEvent): unknown {
  const traceback = tracebackOf(event);
  if (traceback) return traceback;
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
      icon={attempt > 1 ? "rerun" : "note"}
      className={attempt > 1 ? "text-running-text" : "text-text-2"}
      event={row.start}
      bodyOf={bodyOf}
    >
      {attempt > 1 ? `Attempt ${attempt} on ${host}` : "Input"}
    </Line>
  );
}

const OUTCOME_LOOKS: Record<string, { icon: IconName; className: string }> = {
  completed: { icon: "done", className: "text-done-text" },
  cancelled: CANCELLED,
};

/** The outcome of the run. */
export function Outcome({ row, open }: { row: OutcomeRow; open: boolean }) {
  const { status, error, duration_ms: durationMs } = row.end.payload;
  const { icon, className } = OUTCOME_LOOKS[status] ?? FAILED;
  return (
    <Line seq={row.seq} open={open} icon={icon} className={className} event={row.end} bodyOf={resultOf}>
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
    <Line seq={row.seq} open={open} icon="help" className="text-running-text" event={row.event} bodyOf={payloadOrEvent}>
      Unknown event type: <span className="font-mono">{asText(row.event.type)}</span>
    </Line>
  );
}

/** Return the payload, or the whole event if a damaged log has none. */
const payloadOrEvent = (event: { payload?: unknown }): unknown => event.payload ?? event;
