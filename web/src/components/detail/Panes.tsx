import clsx from "clsx";
import { useCallback, useEffect, useRef, useState } from "react";
import type { RunDetail } from "@/api";
import { Timeline } from "@/components/timeline/Timeline";
import { Transcript } from "@/components/transcript/Transcript";
import { useChangeAddress, useAddress } from "@/useAddress";
import { isActive } from "@/views/detail";
import { Result } from "./Result";

const CLOSED_KEY = "shopfloor.timeline.closed";
/** Heights of the timeline: no higher than its content, so that the transcript gets the rest. */
const SIZES = {
  first: "shrink-0 max-h-[30dvh]",
  second: "shrink-0 max-h-[60dvh] @3xl:max-h-[26dvh]",
  alone: "flex-1",
};
/** Beside the transcript, the timeline takes nothing from its height. */
const BESIDE_CLASS = "@min-[60rem]:max-h-none @min-[60rem]:w-[22rem] @7xl:w-[26rem]";

/**
 * Transcript, timeline and result of a run. The timeline of an active run is first, and stays first when the run ends,
 * so that nothing moves under the reader. The timeline of an ended run comes after the transcript.
 */
export function Panes({ run, event }: { run: RunDetail; event: number | undefined }) {
  const changeAddress = useChangeAddress();
  const { find: searchText } = useAddress();
  const transcriptRef = useRef<HTMLDivElement>(null);
  const isRunActive = isActive(run.status);
  const [isTimelineFirst] = useState(isRunActive || !run.has_transcript);
  // Without messages, tool calls and sub-runs there is nothing to show beside the timeline.
  const hasTranscript = isRunActive || run.has_transcript || run.tool_calls > 0 || run.children > 0;
  const [isOpen, toggle] = useTimelineOpen(isTimelineFirst);

  // In a stacked layout, the transcript may be out of sight when the user jumps to one of its events.
  const showTranscript = useCallback(() => transcriptRef.current?.scrollIntoView({ block: "nearest" }), []);
  useEffect(() => {
    if (event !== undefined) showTranscript();
  }, [event, showTranscript]);
  const [repeats, setRepeats] = useState(0);
  const eventRef = useRef(event);
  useEffect(() => {
    eventRef.current = event;
  });
  const goToEvent = useCallback(
    (seq: number) => {
      // The address names the event already, so navigating to it would do nothing.
      if (seq === eventRef.current) setRepeats((before) => before + 1);
      else changeAddress({ event: seq });
      showTranscript();
    },
    [changeAddress, showTranscript],
  );
  const onEvent = useCallback((seq: number | undefined) => changeAddress({ event: seq }, true), [changeAddress]);

  const size = !hasTranscript ? SIZES.alone : clsx(isTimelineFirst ? SIZES.first : SIZES.second, BESIDE_CLASS);
  return (
    <>
      {!isRunActive && <Result run={run} />}
      <div
        className={clsx(
          // Never lower than both panes need, or the content below would overlap them.
          "flex flex-col divide-y divide-line @3xl:min-h-[max(28rem,30dvh+18rem)] @3xl:flex-1",
          isOpen &&
            hasTranscript &&
            "@min-[60rem]:min-h-80 @min-[60rem]:flex-row @min-[60rem]:divide-x @min-[60rem]:divide-y-0",
          isTimelineFirst && "divide-y-reverse @min-[60rem]:divide-x-reverse",
        )}
      >
        {hasTranscript && (
          <div
            ref={transcriptRef}
            className="flex h-[75dvh] min-h-0 shrink-0 flex-col @3xl:h-auto @3xl:min-h-64 @3xl:min-w-0 @3xl:flex-1"
          >
            <Transcript run={run} target={event} repeats={repeats} searchQuery={searchText} onEvent={onEvent} />
          </div>
        )}
        <Timeline
          run={run}
          selectedSeq={event}
          onEvent={goToEvent}
          onScrolled={showTranscript}
          isOpen={isOpen}
          onToggle={toggle}
          className={clsx(isTimelineFirst && "order-first", isOpen ? size : "shrink-0")}
        />
      </div>
    </>
  );
}

/**
 * Whether the timeline is open. A timeline that comes first always starts open; for the others the choice is
 * remembered.
 */
function useTimelineOpen(isFirst: boolean): [boolean, () => void] {
  const [isOpen, setIsOpen] = useState(() => isFirst || localStorage.getItem(CLOSED_KEY) === null);
  const toggle = () => {
    setIsOpen(!isOpen);
    if (isFirst) return;
    if (isOpen) localStorage.setItem(CLOSED_KEY, "yes");
    else localStorage.removeItem(CLOSED_KEY);
  };
  return [isOpen, toggle];
}
