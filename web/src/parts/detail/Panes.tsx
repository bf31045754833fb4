import clsx from "clsx";
import { useCallback, useEffect, useRef, useState } from "react";
import type { RunDetail } from "@/api";
import { Timeline } from "@/parts/timeline/Timeline";
import { Transcript } from "@/parts/transcript/Transcript";
import { useGo } from "@/place";
import { goesOn } from "@/views/detail";
import { Result } from "./Result";

const CLOSED_KEY = "shopfloor.timeline.closed";
/** Of the timeline. A height of its own, so that it stays as it is when a result appears. */
const SIZES = {
  any: "shrink-0",
  leading: "h-[30dvh] @7xl:h-auto @7xl:w-[28rem]",
  beside: "max-h-[60dvh] @3xl:h-[26dvh] @3xl:min-h-44 @7xl:h-auto @7xl:max-h-none @7xl:w-[22rem]",
  alone: "flex-1",
};

/**
 * What was done in the run, and what it gave. Which comes first is decided once, when the run is chosen: a run that ends
 * while somebody reads must not throw the page about.
 */
export function Panes({ run, event }: { run: RunDetail; event: number | undefined }) {
  const go = useGo();
  const transcript = useRef<HTMLDivElement>(null);
  const [wasLive] = useState(() => goesOn(run.status));
  const [timelineLeads] = useState(() => wasLive || !run.has_transcript);
  // Where nothing was said, nor done by tools or other runs, there is nothing to show beside the timeline.
  const talks = wasLive || run.has_transcript || run.tool_calls > 0 || run.children > 0;
  const [open, toggle] = useOpen(timelineLeads);

  // Where the panes are stacked, the transcript may be out of sight when something in it is gone to.
  useEffect(() => {
    if (event !== undefined) transcript.current?.scrollIntoView({ block: "nearest" });
  }, [event]);
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
      transcript.current?.scrollIntoView({ block: "nearest" });
    },
    [go],
  );
  const onEvent = useCallback((seq: number | undefined) => go({ event: seq }, true), [go]);

  const result = goesOn(run.status) ? null : <Result run={run} />;
  const said = (
    <div key="transcript" ref={transcript} className="flex h-[75dvh] min-h-0 shrink-0 flex-col @3xl:h-auto @3xl:min-h-64 @3xl:min-w-0 @3xl:flex-1">
      <Transcript run={run} target={event} times={times} onEvent={onEvent} />
    </div>
  );
  const done = (
    <Timeline
      key="timeline"
      run={run}
      chosen={event}
      onEvent={toEvent}
      open={open}
      onToggle={toggle}
      className={clsx(SIZES.any, open && (!talks ? SIZES.alone : timelineLeads ? SIZES.leading : SIZES.beside))}
    />
  );
  return (
    <>
      {!wasLive && result}
      <div
        className={clsx(
          // Never less than both need: what comes after would else lie on top of them.
          "flex flex-col divide-y divide-line @3xl:min-h-[max(28rem,30dvh+18rem)] @3xl:flex-1",
          open && "@7xl:min-h-80 @7xl:flex-row @7xl:divide-x @7xl:divide-y-0",
        )}
      >
        {timelineLeads ? [done, talks && said] : [said, done]}
      </div>
      {wasLive && result}
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
