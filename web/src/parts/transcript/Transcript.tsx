import { type RefObject, useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState } from "react";
import { PAGE, type RunDetail, type RunLog, useLog } from "@/api";
import { Trouble } from "@/parts/ui/Trouble";
import { goesOn } from "@/views/detail";
import { type Choice, useChoice } from "./choice";
import { Drawn } from "./Drawn";
import { type UsedFind, useFind } from "./find";
import { HitLine } from "./FindBar";
import { type UsedFolds, useFolds } from "./folds";
import { useHighlight } from "./highlight";
import { ReadingContext } from "./reading";
import { useTranscriptKeys } from "./transcriptKeys";
import { Toolbar } from "./Toolbar";
import "./transcript.css";
import { TypingRows } from "./TypingRows";
import { Viewport } from "./viewport";
import { Waiting } from "./Waiting";
import { useWanted } from "./wanted";
import { isBare } from "./words";

interface Props {
  run: RunDetail;
  /** The event to go to. */
  target: number | undefined;
  /** Told the event that somebody chose. */
  onEvent: (seq: number | undefined) => void;
}

/** All that was said and done in a run. However long it is, only what is in sight is loaded and drawn. */
export function Transcript({ run, target, onEvent }: Props) {
  const isLive = goesOn(run.status);
  const log = useLog(run.id, run.last_seq, isLive);
  const viewport = useViewport(log, isBare(run), isLive && target === undefined);
  const folds = useFolds();
  const choice = useChoice(log, isBare(run), viewport, folds);
  const field = useRef<HTMLInputElement>(null);
  const [words, setWords] = useState("");
  const find = useFind(run.id, words.trim(), log.lastSeq);
  const own = useGoing(target, find, choice);
  const retry = useWanted(log, viewport.range.from - PAGE, viewport.range.to + PAGE);

  const follow = (wanted: boolean) => {
    if (!wanted) return viewport.stay();
    choice.toEnd();
    onEvent(undefined);
  };
  const setAll = (open: boolean) => {
    viewport.stay();
    folds.setAll(open);
  };
  const { choose } = choice;
  const onChoose = useCallback(
    (seq: number) => {
      choose(seq);
      viewport.keep(seq);
      own.current = seq;
      onEvent(seq);
    },
    [choose, viewport, onEvent, own],
  );
  useTranscriptKeys({ run, choice, folds, log, bare: isBare(run), viewport, follow, setAll, isLive, field });
  const reading = useReadingOf(run, log, isLive, folds, viewport, onChoose);
  return (
    <section aria-label="Transcript" className="flex min-h-0 flex-1 flex-col">
      <Toolbar
        find={find}
        field={field}
        words={words}
        onWords={setWords}
        following={isLive ? viewport.atEnd : null}
        onFollow={follow}
        all={folds.all}
        onAll={setAll}
        count={log.lastSeq}
      />
      {words.trim() && <HitLine find={find} />}
      <ReadingContext value={reading}>
        <Scroller viewport={viewport} log={log} folds={folds} chosen={choice.chosen} words={words.trim()} />
      </ReadingContext>
      {log.problem && <Trouble error={log.problem} onRetry={retry} />}
      <Waiting asked={run.awaits} runId={run.id} />
    </section>
  );
}

function useViewport(log: RunLog, bare: boolean, atEnd: boolean): Viewport {
  const [, drawAgain] = useReducer((n: number) => n + 1, 0);
  const [first] = useState(atEnd);
  return useMemo(() => new Viewport(log, bare, first, drawAgain), [log, bare, first]);
}

/** What the rows need, the same as long as it is the same: else all of them would be drawn again. */
function useReadingOf(run: RunDetail, log: RunLog, isLive: boolean, folds: UsedFolds, viewport: Viewport, onChoose: (seq: number) => void) {
  const { setOpen } = folds;
  const ids = run.awaits.map((one) => one.call_id).join("\n");
  return useMemo(
    () => ({
      log,
      goesOn: isLive,
      asked: new Set(ids.split("\n")),
      onToggle: (seq: number, open: boolean) => {
        // Who opens something wants to read it, where it is.
        viewport.keep(seq);
        setOpen(seq, open);
      },
      onChoose,
    }),
    [log, isLive, ids, viewport, setOpen, onChoose],
  );
}

/** Goes to the event of the address, unless somebody pressed it right here, and to what a search finds. */
function useGoing(target: number | undefined, find: UsedFind, { goTo }: Choice): RefObject<number | null> {
  const own = useRef<number | null>(null);
  useEffect(() => {
    if (target !== undefined && target !== own.current) goTo(target);
    own.current = null;
  }, [target, goTo]);
  const hit = find.hits[find.place]?.seq;
  useEffect(() => {
    if (hit !== undefined) goTo(hit);
  }, [hit, find.place, goTo]);
  return own;
}

interface ScrollerProps {
  viewport: Viewport;
  log: RunLog;
  folds: UsedFolds;
  chosen: number | null;
  words: string;
}

function Scroller({ viewport, log, folds, chosen, words }: ScrollerProps) {
  const scroller = useRef<HTMLDivElement>(null);
  const sizer = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLOListElement>(null);
  useLayoutEffect(() => {
    if (scroller.current && sizer.current && list.current) return viewport.attach(scroller.current, sizer.current, list.current);
    return undefined;
  }, [viewport]);
  useLayoutEffect(() => viewport.layOut());
  useHighlight(list.current, words);
  return (
    <div ref={scroller} tabIndex={0} role="group" aria-label="Transcript rows" className="relative min-h-0 flex-1 overflow-x-hidden overflow-y-auto [overflow-anchor:none]">
      {log.lastSeq === 0 && <p className="p-4 text-ink-faint">No events yet.</p>}
      <div ref={sizer} className="relative">
        <ol ref={list} className="absolute inset-x-0">
          <Drawn viewport={viewport} log={log} folds={folds} chosen={chosen} />
        </ol>
      </div>
      <div>
        <TypingRows log={log} />
        <div className="h-2" />
      </div>
    </div>
  );
}

