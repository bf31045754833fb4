import clsx from "clsx";
import { useCallback, useEffect, useRef, useState } from "react";
import type { RunDetail } from "@/api";
import { Timeline } from "@/components/timeline/Timeline";
import { Transcript } from "@/components/transcript/Transcript";
import { useGo, usePlace } from "@/address";
import { goesOn } from "@/views/detail";
import { Result } from "./Result";

const CLOSED_KEY = "shopfloor.timeline.closed";
/** Heights of the timeline: no higher than its content, so that the transcript gets the rest. */
const SIZES = {
  leading: "shrink-0 max-h-[30dvh]",
  following: "shrink-0 max-h-[60dvh] @3xl:max-h-[26dvh]",
  alone: "flex-1",
};
/** Beside the transcript, the timeline takes nothing from its height. */
const BESIDE = "@min-[60rem]:max-h-none @min-[60rem]:w-[22rem] @7xl:w-[26rem]";

/**
 * Transcript, timeline and result of a run. The timeline of an active run is first, and stays first when the run ends,
 * so that nothing moves under the reader. The timeline of an ended run comes after the transcript.
 */
export function Panes({ run, event }: { run: RunDetail; event: number | undefined }) {
  const go = useGo();
  const { find: sought } = usePlace();
  const transcript = useRef<HTMLDivElement>(null);
  const isLive = goesOn(run.status);
  const [timelineLeads] = useState(isLive || !run.has_transcript);
  // Without messages, tool calls and sub-runs there is nothing to show beside the timeline.
  const talks = isLive || run.has_transcript || run.tool_calls > 0 || run.children > 0;
  const [open, toggle] = useOpen(timelineLeads);

  // In a stacked layout, the transcript may be out of sight when the user jumps to one of its events.
  const showTranscript = useCallback(() => transcript.current?.scrollIntoView({ block: "nearest" }), []);
  useEffect(() => {
    if (event !== undefined) showTranscript();
  }, [event, showTranscript]);
  const [times, setTimes] = useState(0);
  const now = useRef(event);
  useEffect(() => {
    now.current = event;
  });
  const toEvent = useCallback(
    (seq: number) => {
      // The address names the event already, so navigating to it would do nothing.
      if (seq === now.current) setTimes((before) => before + 1);
      else go({ event: seq });
      showTranscript();
    },
    [go, showTranscript],
  );
  const onEvent = useCallback((seq: number | undefined) => go({ event: seq }, true), [go]);

  const size = !talks ? SIZES.alone : clsx(timelineLeads ? SIZES.leading : SIZES.following, BESIDE);
  return (
    <>
      {!isLive && <Result run={run} />}
      <div
        className={clsx(
          // Never lower than both panes need, or the content below would overlap them.
          "flex flex-col divide-y divide-line @3xl:min-h-[max(28rem,30dvh+18rem)] @3xl:flex-1",
          open && talks && "@min-[60rem]:min-h-80 @min-[60rem]:flex-row @min-[60rem]:divide-x @min-[60rem]:divide-y-0",
          timelineLeads && "divide-y-reverse @min-[60rem]:divide-x-reverse",
        )}
      >
        {talks && (
          <div
            ref={transcript}
            className="flex h-[75dvh] min-h-0 shrink-0 flex-col @3xl:h-auto @3xl:min-h-64 @3xl:min-w-0 @3xl:flex-1"
          >
            <Transcript run={run} target={event} times={times} sought={sought} onEvent={onEvent} />
          </div>
        )}
        <Timeline
          run={run}
          chosen={event}
          onEvent={toEvent}
          onShown={showTranscript}
          open={open}
          onToggle={toggle}
          className={clsx(timelineLeads && "order-first", open ? size : "shrink-0")}
        />
      </div>
    </>
  );
}

/**
 * Whether the timeline is open. A timeline that comes first always starts open; for the others the choice is
 * remembered.
 */
function useOpen(leads: boolean): [boolean, () => void] {
  const [open, setOpen] = useState(() => leads || localStorage.getItem(CLOSED_KEY) === null);
  const toggle = () => {
    setOpen(!open);
    if (leads) return;
    if (open) localStorage.setItem(CLOSED_KEY, "yes");
    else localStorage.removeItem(CLOSED_KEY);
  };
  return [open, toggle];
}
