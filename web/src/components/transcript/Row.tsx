import clsx from "clsx";
import { memo, type ReactNode } from "react";
import type { LogEvent } from "@/api";
import { isSameRow, type Row } from "@/views/rowTypes";
import { formatClock, formatDateTime } from "@/views/time";
import { Call, Result } from "./Call";
import { Message } from "./Message";
import { Output } from "./Output";
import { Attempt, Outcome, Step, UnknownEvent } from "./LineRows";
import { useTranscriptContext } from "./transcriptContext";
import { SubRun } from "./SubRun";

interface Props {
  row: Row;
  open: boolean;
  /** Whether the row is selected. */
  isSelected: boolean;
}

/** A row of the transcript, with its time. */
export const RowView = memo(
  function RowView({ row, open, isSelected }: Props) {
    const event = row.events[0];
    return (
      <li
        data-seq={row.seq}
        data-kind={row.kind === "unknown-event" ? "unknown" : row.kind}
        aria-current={isSelected || undefined}
        className={clsx(
          "group relative flex gap-2 border-l-2 px-2.5 py-1 sm:gap-3 sm:px-3",
          isSelected ? "border-accent bg-app-selected/40" : "border-transparent",
        )}
      >
        <div className="min-w-0 flex-1">
          {row.stepPath !== null && row.kind !== "step" && row.kind !== "sub-run" && <StepPath path={row.stepPath} />}
          <Content row={row} open={open} />
        </div>
        {event && <EventTime event={event} />}
      </li>
    );
  },
  (before, after) =>
    before.open === after.open && before.isSelected === after.isSelected && isSameRow(before.row, after.row),
);

function Content({ row, open }: { row: Row; open: boolean }): ReactNode {
  switch (row.kind) {
    case "output":
      return <Output row={row} />;
    case "call":
      return <Call row={row} open={open} />;
    case "result":
      return <Result row={row} open={open} />;
    case "step":
      return <Step row={row} open={open} />;
    case "sub-run":
      return <SubRun row={row} open={open} />;
    case "attempt":
      return <Attempt row={row} open={open} />;
    case "outcome":
      return <Outcome row={row} open={open} />;
    case "unknown-event":
      return <UnknownEvent row={row} open={open} />;
    default:
      return <Message row={row} open={open} />;
  }
}

/** The path of the step that the following rows belong to. */
export function StepPath({ path }: { path: string }) {
  return <div className="pt-0.5 text-[11px] leading-4 text-ink-faint">{path.split(".").join(" › ")}</div>;
}

/** The time of an event; a click puts the event into the address. */
function EventTime({ event }: { event: LogEvent }) {
  const { onSelect } = useTranscriptContext();
  const at = event.timestamp;
  if (!at) return null;
  const isReadTime = "clock" in event.payload && event.payload.clock === "reader";
  const tooltip = `${formatDateTime(at)}\nEvent ${event.seq}${isReadTime ? "\nThe time at which the event was read: the agent reports none" : ""}`;
  const className = "shrink-0 self-start rounded px-0.5 pt-0.5 text-[11px] leading-4 text-ink-faint tabular-nums";
  const time = (
    <time dateTime={at}>
      {formatClock(at).slice(0, -3)}
      <span className="max-sm:hidden">{formatClock(at).slice(-3)}</span>
    </time>
  );
  if (!onSelect)
    return (
      <span title={tooltip} className={className}>
        {time}
      </span>
    );
  return (
    <button
      type="button"
      title={`${tooltip}\nClick to link to this event`}
      onClick={() => onSelect(event.seq)}
      className={clsx(className, "hover:text-ink hover:underline")}
    >
      {time}
    </button>
  );
}
