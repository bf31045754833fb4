import clsx from "clsx";
import { useCallback, useEffect, useRef, useState } from "react";
import type { RunDetail } from "@/api";
import { Timeline } from "@/parts/timeline/Timeline";
import { Transcript } from "@/parts/transcript/Transcript";
import { useGo, usePlace } from "@/place";
import { goesOn } from "@/views/detail";
import { Result } from "./Result";

const CLOSED_KEY = "shopfloor.timeline.closed";
/** Of the timeline: no higher than what it tells, so that the transcript has the rest. */
const SIZES = {
  leading: "shrink-0 max-h-[30dvh]",
  following: "shrink-0 max-h-[60dvh] @3xl:max-h-[26dvh]",
  alone: "flex-1",
};
/** Where there is room beside the transcript, the timeline takes nothing from its height. */
const BESIDE = "@min-[60rem]:max-h-none @min-[60rem]:w-[22rem] @7xl:w-[26rem]";

/**
 * What was done in the run, and what it gave. The timeline of a run that goes on leads, and stays where it is when the run
 * ends: nothing changes places under a reader. Who comes later finds the transcript first.
 */
export function Panes({ run, event }: { run: RunDetail; event: number | undefined }) {
  const go = useGo();
  const { find: sought } = usePlace();
  const transcript = useRef<HTMLDivElement>(null);
  const isLive = goesOn(run.status);
  const [timelineLeads] = useState(isLive || !run.has_transcript);
  // Where nothing was said, nor done by tools or other runs, there is nothing to show beside the timeline.
  const talks = isLive || run.has_transcript || run.tool_calls > 0 || run.children > 0;
  const [open, toggle] = useOpen(timelineLeads);

  // Where the panes are stacked, the transcript may be out of sight when something in it is gone to.
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
      // Where the address names it already, nothing would follow from naming it again.
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
          // Never less than both need: what comes after would else lie on top of them.
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

/** Whether the timeline is open. One that leads is; of the others it is remembered. */
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
