import { type RefObject, useCallback, useEffect, useMemo, useReducer, useRef, useState } from "react";
import { PAGE, type RunDetail, type RunLog, useLog } from "@/api";
import { Trouble } from "@/components/ui/ErrorMessage";
import { cancelReason, goesOn } from "@/views/detail";
import { type Choice, useChoice } from "./useSelectedRow";
import { type UsedFind, useSought } from "./useTranscriptSearch";
import { HitLine } from "./SearchBar";
import { canOpen, type UsedFolds, useFolds } from "./useFolds";
import { ReadingContext } from "./transcriptContext";
import { Scroller } from "./Scroller";
import { SoughtContext } from "./Text";
import { useTranscriptKeys } from "./useTranscriptShortcuts";
import { Toolbar } from "./Toolbar";
import "./transcript.css";
import { Viewport } from "./viewport";
import { useWanted } from "./useLoadRange";
import { isBare } from "./labels";

interface Props {
  run: RunDetail;
  /** The event to go to. */
  target: number | undefined;
  /** How often the same target was requested again: each time the view goes there once more. */
  times: number;
  /** The search query that found the run: the transcript opens at its first hit. */
  sought: string | undefined;
  /** Called with the event that the user selected. */
  onEvent: (seq: number | undefined) => void;
}

/** The transcript of a run. Only the part in sight is loaded and rendered, however long the log is. */
export function Transcript({ run, target, times, sought, onEvent }: Props) {
  const isLive = goesOn(run.status);
  const log = useLog(run.id, run.last_seq, isLive);
  const viewport = useViewport(log, isBare(run), isLive && target === undefined);
  const folds = useFolds();
  const choice = useChoice(log, isBare(run), viewport, folds);
  const field = useRef<HTMLInputElement>(null);
  const [said, say] = useSaid();
  const { words, setWords, find } = useSought(run.id, target === undefined ? sought : undefined, log.lastSeq);
  const pane = useRef<HTMLElement>(null);
  const setOwn = useGoing(target, times, find, choice, pane);
  const retry = useWanted(log, viewport.range.from - PAGE, viewport.range.to + PAGE);

  const follow = (wanted: boolean) => {
    if (!wanted) {
      viewport.stay();
      return;
    }
    choice.choose(null);
    viewport.toEnd();
    onEvent(undefined);
  };
  const folding = canOpen(log, isBare(run));
  const setAll = (open: boolean) => {
    if (!folding) return;
    viewport.stay();
    folds.setAll(open);
  };
  const { choose } = choice;
  const onChoose = useCallback(
    (seq: number) => {
      choose(seq);
      viewport.keep(seq);
      setOwn(seq);
      onEvent(seq);
    },
    [choose, viewport, onEvent, setOwn],
  );
  useTranscriptKeys({ run, choice, folds, log, bare: isBare(run), viewport, follow, setAll, isLive, field, say });
  const reading = useReadingOf(run, log, isLive, folds, viewport, onChoose);
  return (
    <section ref={pane} aria-label="Transcript" className="flex min-h-0 flex-1 flex-col">
      <Toolbar
        find={find}
        field={field}
        words={words}
        onWords={setWords}
        following={isLive ? viewport.atEnd : null}
        onFollow={follow}
        all={folding ? folds.all : null}
        onAll={setAll}
        said={said ?? `${log.lastSeq.toLocaleString("en")} ${log.lastSeq === 1 ? "event" : "events"}`}
      />
      {words.trim() && <HitLine find={find} />}
      <ReadingContext value={reading}>
        <SoughtContext value={words.trim().toLowerCase()}>
          <Scroller viewport={viewport} log={log} folds={folds} chosen={choice.chosen} words={words.trim()} />
        </SoughtContext>
      </ReadingContext>
      {log.problem && <Trouble error={log.problem} onRetry={retry} />}
    </section>
  );
}

const SAID_MS = 1_500;

/** A message that disappears after a moment. */
function useSaid(): [string | null, (words: string) => void] {
  const [said, say] = useState<string | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => say(null), SAID_MS);
    return () => clearTimeout(timer);
  }, [said]);
  return [said, say];
}

function useViewport(log: RunLog, bare: boolean, atEnd: boolean): Viewport {
  const [, drawAgain] = useReducer((n: number) => n + 1, 0);
  const [first] = useState(atEnd);
  return useMemo(() => new Viewport(log, bare, first, drawAgain), [log, bare, first]);
}

/** The context of the rows; the same object until a value changes, so that rows are not rendered again. */
function useReadingOf(
  run: RunDetail,
  log: RunLog,
  isLive: boolean,
  folds: UsedFolds,
  viewport: Viewport,
  onChoose: (seq: number) => void,
) {
  const { setOpen } = folds;
  const cancelled = cancelReason(run);
  const ids = run.awaits.map((one) => one.call_id).join("\n");
  return useMemo(
    () => ({
      log,
      goesOn: isLive,
      cancelled,
      asked: new Set(ids.split("\n")),
      onToggle: (seq: number, open: boolean) => {
        // Keep the row in place: the user wants to read what was opened.
        viewport.keep(seq);
        setOpen(seq, open);
      },
      onChoose,
    }),
    [log, isLive, cancelled, ids, viewport, setOpen, onChoose],
  );
}

/** Go to the event of the address, unless the user selected it right here, and to the current search hit. */
function useGoing(
  target: number | undefined,
  times: number,
  find: UsedFind,
  { goTo }: Choice,
  pane: RefObject<HTMLElement | null>,
): (seq: number) => void {
  const own = useRef<number | null>(null);
  useEffect(() => {
    if (target !== undefined && target !== own.current) goTo(target);
    own.current = null;
  }, [target, times, goTo]);
  const hit = find.hits[find.place]?.seq;
  useEffect(() => {
    if (hit === undefined) return;
    goTo(hit);
    // On a small screen the transcript itself may be out of sight.
    pane.current?.scrollIntoView({ block: "nearest" });
  }, [hit, find.place, goTo, pane]);
  return useCallback((seq) => {
    own.current = seq;
  }, []);
}
