import clsx from "clsx";
import { memo, type ReactNode } from "react";
import type { LogEvent } from "@/api";
import { isSameRow, lastSeqOf, type Row } from "@/views/rowTypes";
import { formatClock, formatDateTime } from "@/views/time";
import { Call, Reads, Result } from "./Call";
import { Message } from "./Message";
import { Output } from "./Output";
import { Attempt, Outcome, Step, UnknownEvent } from "./LineRows";
import { useTranscriptContext } from "./transcriptContext";
import { RowBoundary } from "./RowBoundary";
import { RowStatePart } from "./rowState";
import { SubRun } from "./SubRun";

interface Props {
  row: Row;
  open: boolean;
  /** The calls of the row that are expanded inside of it, as a list of their numbers. */
  openInside?: string;
  /** Whether the row is selected. */
  isSelected: boolean;
}

/** A row of the transcript, with its time. */
export const RowView = memo(
  function RowView({ row, open, openInside = "", isSelected }: Props) {
    const event = row.events[0];
    return (
      <li
        data-seq={row.seq}
        data-kind={row.kind === "unknown-event" ? "unknown" : row.kind}
        aria-current={isSelected || undefined}
        className={clsx(
          "relative flex border-l-2 pr-3 pl-2.5 in-data-hovered:bg-bg-hover data-hovered:bg-bg-hover max-md:px-1.5",
          isSelected
            ? "border-n-8 bg-accent-bg group-data-[zone=detail]/zone:border-accent-line"
            : "border-transparent",
        )}
      >
        <div className="max-w-[860px] min-w-0 flex-1">
          {row.stepPath !== null && row.kind !== "step" && row.kind !== "sub-run" && <StepPath path={row.stepPath} />}
          <RowStatePart name={row.seq}>
            <RowBoundary row={row}>
              <Content row={row} open={open} openInside={openInside} />
            </RowBoundary>
          </RowStatePart>
        </div>
        {event && <RowTools event={event} forkSeq={lastSeqOf(row)} />}
      </li>
    );
  },
  (before, after) =>
    before.open === after.open &&
    before.openInside === after.openInside &&
    before.isSelected === after.isSelected &&
    isSameRow(before.row, after.row),
);

function Content({ row, open, openInside }: { row: Row; open: boolean; openInside: string }): ReactNode {
  switch (row.kind) {
    case "output":
      return <Output row={row} />;
    case "call":
      return <Call row={row} open={open} />;
    case "reads":
      return <Reads row={row} open={open} openInside={new Set(openInside.split(" ").map(Number))} />;
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
  return <div className="pt-1 pl-[30px] text-11 leading-4 text-text-3 max-md:pl-2">{path.split(".").join(" › ")}</div>;
}

/**
 * The time of a row and the button to fork from it. Shown where the reader is: a column of both would say little. Only
 * those of the row itself, and not of the rows of an open sub-run inside it.
 */
function RowTools({ event, forkSeq }: { event: LogEvent; forkSeq: number }) {
  const { onFork } = useTranscriptContext();
  return (
    <span className="absolute -top-2.5 right-2 z-10 flex rounded-1 border border-border bg-bg text-11 leading-4 text-text-3 opacity-0 focus-within:opacity-100 [[aria-current]>&]:opacity-100 [li:hover>&]:opacity-100 max-md:hidden">
      {onFork && (
        <button
          type="button"
          tabIndex={-1}
          title={`Start a new run with what happened up to event ${forkSeq}`}
          onClick={() => onFork(forkSeq)}
          className="px-1 hover:text-text hover:underline"
        >
          Fork here
        </button>
      )}
      <EventTime event={event} />
    </span>
  );
}

/** The time of an event; a click puts the event into the address. */
function EventTime({ event }: { event: LogEvent }) {
  const { onSelect } = useTranscriptContext();
  const at = event.timestamp;
  if (!at) return null;
  const isReadTime = "clock" in event.payload && event.payload.clock === "reader";
  const tooltip = `${formatDateTime(at)}\nEvent ${event.seq}${isReadTime ? "\nThe time at which the event was read: the agent reports none" : ""}`;
  const time = <time dateTime={at}>{formatClock(at)}</time>;
  if (!onSelect)
    return (
      <span title={tooltip} className="px-1 tabular-nums">
        {time}
      </span>
    );
  return (
    <button
      type="button"
      // The key c copies the link of the selected event.
      tabIndex={-1}
      title={`${tooltip}\nClick to link to this event`}
      onClick={() => onSelect(event.seq)}
      className="px-1 tabular-nums hover:text-text hover:underline"
    >
      {time}
    </button>
  );
}
