/** The row that the reader's attention is on: the address names it, a search finds it, keys move it. */
import { useCallback, useEffect, useRef, useState } from "react";
import { PAGE, pageOf, type RunLog } from "@/api";
import { opensWithAll, type Row } from "@/views/rows";
import { rowShowing, rowsOf } from "@/views/transcript";
import type { UsedFolds } from "./folds";
import type { Viewport } from "./viewport";

export interface Choice {
  /** The number of the row. */
  readonly chosen: number | null;
  readonly choose: (seq: number | null) => void;
  /** Goes to an event, loads what has to be loaded, and opens what hides it. */
  readonly goTo: (seq: number) => void;
  readonly move: (step: 1 | -1) => void;
  readonly toStart: () => void;
  readonly toEnd: () => void;
}

export function useChoice(log: RunLog, bare: boolean, viewport: Viewport, folds: UsedFolds): Choice {
  const [chosen, setChosen] = useState<number | null>(null);
  // The last wish counts, whatever is loaded later.
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
  // Which row shows the event is known once it is there, however long that takes: it may be yet to happen.
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
    // Who has scrolled away meanwhile is not pulled back.
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

/** Whether an event is not seen in its row until that is opened. */
const hides = (row: Row, seq: number) => row.seq !== seq || opensWithAll(row);

/** The next row from there on that shows something. */
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
