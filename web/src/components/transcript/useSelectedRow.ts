/** The selected row: the address names it, a search finds it, keys move it. */
import { useCallback, useEffect, useRef, useState } from "react";
import { PAGE, pageOf, type RunLog } from "@/api";
import { opensWithAll, type Row } from "@/views/transcriptRows";
import { rowShowing, rowsOf } from "@/views/transcript";
import type { UsedFolds } from "./useFolds";
import type { Viewport } from "./viewport";

export interface Choice {
  /** The `seq` of the row. */
  readonly chosen: number | null;
  readonly choose: (seq: number | null) => void;
  /** Go to an event: load its page, scroll to it, and expand the row that hides it. */
  readonly goTo: (seq: number) => void;
  readonly move: (step: 1 | -1) => void;
  readonly toStart: () => void;
  readonly toEnd: () => void;
}

export function useChoice(log: RunLog, bare: boolean, viewport: Viewport, folds: UsedFolds): Choice {
  const [chosen, setChosen] = useState<number | null>(null);
  // Incremented by each request; a request that was overtaken while loading is dropped.
  const wish = useRef(0);
  const { setOpen } = folds;

  const [goal, setGoal] = useState<number | null>(null);
  const goTo = useCallback(
    (seq: number) => {
      wish.current++;
      setGoal(seq);
      setChosen(seq);
      viewport.goTo(seq);
      void log.want(seq, seq);
    },
    [log, viewport],
  );
  // The row of the event is known once its page is loaded. The event may even be in the future of an active run.
  const page = goal !== null && log.event(goal) ? log.page(pageOf(goal)) : undefined;
  const hasHappened = goal !== null && goal <= log.lastSeq;
  useEffect(() => {
    if (goal !== null && hasHappened) void log.want(goal, goal);
  }, [log, goal, hasHappened]);
  useEffect(() => {
    const row = page && goal !== null && rowShowing(rowsOf(page, bare), goal);
    if (!row) return;
    setGoal(null);
    setChosen(row.seq);
    if (hides(row, goal)) setOpen(row.seq, true);
    // Do not scroll a reader back who has scrolled away meanwhile.
    if (viewport.isAt(goal)) viewport.goTo(row.seq);
  }, [page, goal, bare, viewport, setOpen]);

  const choose = useCallback((seq: number | null) => {
    wish.current++;
    setGoal(null);
    setChosen(seq);
  }, []);

  const show = useCallback(
    async (from: number, step: 1 | -1) => {
      const mine = ++wish.current;
      setGoal(null);
      const row = await nextRow(log, bare, from, step);
      if (row === null || mine !== wish.current) return;
      setChosen(row);
      viewport.show(row);
    },
    [log, bare, viewport],
  );
  const move = (step: 1 | -1) => {
    const isInSight = chosen !== null && chosen >= viewport.range.from && chosen <= viewport.range.to;
    if (isInSight) void show(chosen + step, step);
    else void show(step > 0 ? viewport.first : viewport.last, step);
  };
  useEffect(
    () => () => {
      wish.current++;
    },
    [],
  );
  return {
    chosen,
    choose,
    goTo,
    move,
    toStart: () => void show(1, 1),
    toEnd: () => {
      viewport.toEnd();
      const mine = ++wish.current;
      void nextRow(log, bare, log.lastSeq, -1).then((row) => mine === wish.current && setChosen(row));
    },
  };
}

/** Whether an event is visible only when its row is expanded. */
const hides = (row: Row, seq: number) => row.seq !== seq || opensWithAll(row);

/** Return the next row that shows something, from `from` on. */
async function nextRow(log: RunLog, bare: boolean, from: number, step: 1 | -1): Promise<number | null> {
  let seq = from;
  while (seq >= 1 && seq <= log.lastSeq) {
    const number = pageOf(seq);
    await log.want(seq, seq);
    const page = log.page(number);
    if (!page) return null;
    const rows = [...rowsOf(page, bare).keys()];
    const found = step > 0 ? rows.find((one) => one >= seq) : rows.findLast((one) => one <= seq);
    if (found !== undefined) return found;
    seq = step > 0 ? (number + 1) * PAGE + 1 : number * PAGE;
  }
  return null;
}
