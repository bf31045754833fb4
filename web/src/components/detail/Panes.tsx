import clsx from "clsx";
import {
  type PointerEvent,
  type ReactNode,
  useCallback,
  useEffect,
  useRef,
  useState,
  useSyncExternalStore,
} from "react";
import { getLiveStream, type RunDetail } from "@/api";
import { Timeline } from "@/components/timeline/Timeline";
import { Transcript } from "@/components/transcript/Transcript";
import { useChangeAddress, useAddress } from "@/useAddress";
import { isActive } from "@/views/detail";
import { isSingleStep } from "@/components/transcript/labels";
import { FailureButtons, useFailures } from "./failures";
import { ResultLine } from "./Result";
import { Notes } from "./Notes";
import { ViewSync } from "./viewSync";

type Tab = "transcript" | "timeline";

interface PanesProps {
  run: RunDetail;
  event: number | undefined;
  /** Fork the run from an event; undefined if the user may not. */
  onFork: ((seq: number) => void) | undefined;
}

/**
 * Transcript and timeline of a run, with a line for its result above. The timeline is always at the right of the
 * transcript; where there is no room beside it, both are tabs.
 */
export function Panes({ run, event, onFork }: PanesProps) {
  const changeAddress = useChangeAddress();
  const { find: searchText } = useAddress();
  const isRunActive = isActive(run.status);
  const [wasActive] = useState(isRunActive);
  const [sync] = useState(() => new ViewSync());
  // Without messages, tool calls and sub-runs there is nothing to show beside the timeline.
  // Once shown, the transcript stays.
  const hasTranscript = wasActive || isRunActive || run.has_transcript || run.tool_calls > 0 || run.children > 0;
  const [selectedTab, setTab] = useState<Tab>("transcript");
  const tab = hasTranscript ? selectedTab : "timeline";
  const [bar, setBar] = useState<HTMLElement | null>(null);

  const [repeats, setRepeats] = useState(0);
  const eventRef = useRef(event);
  useEffect(() => {
    eventRef.current = event;
  });
  const goToEvent = useCallback(
    (seq: number) => {
      setTab("transcript");
      // The address names the event already, so navigating to it would do nothing.
      if (seq === eventRef.current) setRepeats((before) => before + 1);
      else changeAddress({ event: seq });
    },
    [changeAddress],
  );
  const onEvent = useCallback((seq: number | undefined) => changeAddress({ event: seq }, true), [changeAddress]);
  const failures = useFailures(run, event, goToEvent);
  // A failed run opens at the failure that ended it. The reader is taken there once.
  const [opensAtFailure] = useState(run.status === "failed" && event === undefined && searchText === undefined);
  const [failureSeq, setFailureSeq] = useState<number>();
  if (opensAtFailure && failureSeq === undefined && failures.last !== undefined) setFailureSeq(failures.last);
  const target = event ?? failureSeq;

  return (
    <>
      <ResultLine
        run={run}
        isOpenAtFirst={!wasActive && !isSingleStep(run) && run.status === "done"}
        aside={
          <>
            <Notes run={run} />
            <FailureButtons failures={failures} />
          </>
        }
      />
      <div className="flex h-[38px] shrink-0 items-center gap-0.5 border-b border-border px-3 max-md:px-2">
        {hasTranscript && (
          <div role="tablist" aria-label="Views of the run" className="flex">
            <TabButton
              name="transcript"
              label="Transcript"
              count={<EventCount run={run} />}
              selected={tab}
              onSelect={setTab}
            />
            <TabButton
              name="timeline"
              label="Timeline"
              count={run.tool_calls.toLocaleString("en")}
              selected={tab}
              onSelect={setTab}
              isNarrowOnly
            />
          </div>
        )}
        {!hasTranscript && <h2 className="px-2 text-12 font-medium">Timeline</h2>}
        <div ref={setBar} className={clsx("flex min-w-0 flex-1", tab === "timeline" && "max-wide:hidden")} />
      </div>
      <div
        className="flex min-h-48 flex-1"
        onPointerOver={(move: PointerEvent) => sync.hover(move.target as Element)}
        onPointerLeave={() => sync.hover(null)}
      >
        {hasTranscript && (
          <div className={clsx("flex min-h-0 min-w-0 flex-1 flex-col", tab === "timeline" && "max-wide:hidden")}>
            <Transcript
              run={run}
              target={target}
              repeats={repeats}
              searchQuery={searchText}
              onEvent={onEvent}
              onFork={onFork}
              toolbar={bar}
              sync={sync}
            />
          </div>
        )}
        <Timeline
          run={run}
          selectedSeq={event}
          onEvent={goToEvent}
          sync={sync}
          className={clsx(
            hasTranscript ? "w-full wide:w-(--timeline-w) wide:border-l wide:border-border" : "flex-1",
            tab === "transcript" && "max-wide:hidden",
          )}
        />
      </div>
    </>
  );
}

/** The number of events, live. A component of its own: the panes are not rendered for each event. */
function EventCount({ run }: { run: RunDetail }) {
  const log = getLiveStream().log(run.id);
  const lastSeq = useSyncExternalStore(log.subscribe, () => log.lastSeq);
  return Math.max(run.last_seq, lastSeq).toLocaleString("en");
}

interface TabProps {
  name: Tab;
  label: string;
  count: ReactNode;
  selected: Tab;
  onSelect: (tab: Tab) => void;
  /** Whether the tab is needed only where both panes have no room side by side. */
  isNarrowOnly?: boolean;
}

function TabButton({ name, label, count, selected, onSelect, isNarrowOnly = false }: TabProps) {
  const isSelected = selected === name || undefined;
  return (
    <button
      type="button"
      role="tab"
      aria-selected={selected === name}
      onClick={() => onSelect(name)}
      className={clsx(
        "relative flex h-[37px] items-center gap-1.5 px-2 text-12 font-medium -outline-offset-2",
        isNarrowOnly && "wide:hidden",
        isSelected
          ? "text-text after:absolute after:inset-x-2 after:-bottom-px after:h-0.5 after:bg-accent-line"
          : "text-text-2 wide:text-text wide:after:absolute wide:after:inset-x-2 wide:after:-bottom-px wide:after:h-0.5 wide:after:bg-accent-line",
      )}
    >
      {label}
      <small className="text-11 font-normal text-text-3 tabular-nums">{count}</small>
    </button>
  );
}
