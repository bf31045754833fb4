/** The selected row: the address names it, a search finds it, keys move it. */
import { useCallback, useEffect, useRef, useState } from "react";
import { PAGE_EVENTS, pageOf, type RunLog } from "@/api";
import { isInExpandAll, type Row } from "@/views/rowTypes";
import { rowShowing, rowsOf } from "@/views/transcriptRows";
import { type Folds, insideKey } from "./useFolds";
import type { Viewport } from "./viewport";

export interface RowSelection {
  /** The `seq` of the row. */
  readonly selectedSeq: number | null;
  readonly select: (seq: number | null) => void;
  /** Go to an event: load its page, scroll to it, and expand the row that hides it. */
  readonly goTo: (seq: number) => void;
  readonly move: (step: 1 | -1) => void;
  readonly toStart: () => void;
  readonly toEnd: () => void;
}

export function useSelectedRow(log: RunLog, isSingleStep: boolean, viewport: Viewport, folds: Folds): RowSelection {
  const [selectedSeq, setSelectedSeq] = useState<number | null>(null);
  // Incremented by each request; a request that was overtaken while loading is dropped.
  const requestRef = useRef(0);
  const { setOpen } = folds;

  const [targetSeq, setTargetSeq] = useState<number | null>(null);
  const goTo = useCallback(
    (seq: number) => {
      requestRef.current++;
      setTargetSeq(seq);
      setSelectedSeq(seq);
      viewport.goTo(seq);
      void log.load(seq, seq);
    },
    [log, viewport],
  );
  // The row of the event is known once its page is loaded. The event may even be in the future of an active run.
  const page = targetSeq !== null && log.event(targetSeq) ? log.page(pageOf(targetSeq)) : undefined;
  const hasHappened = targetSeq !== null && targetSeq <= log.lastSeq;
  useEffect(() => {
    if (targetSeq !== null && hasHappened) void log.load(targetSeq, targetSeq);
  }, [log, targetSeq, hasHappened]);
  useEffect(() => {
    const row = page && targetSeq !== null && rowShowing(rowsOf(page, isSingleStep), targetSeq);
    if (!row) return;
    setTargetSeq(null);
    setSelectedSeq(row.seq);
    if (hidesEvent(row, targetSeq)) setOpen(row.seq, true);
    const inside = row.kind === "reads" && row.calls.find(({ events }) => events.some(({ seq }) => seq === targetSeq));
    if (inside) setOpen(insideKey(inside.seq), true);
    // Do not scroll a reader back who has scrolled away meanwhile.
    if (viewport.isAnchor(targetSeq)) viewport.goTo(row.seq);
  }, [page, targetSeq, isSingleStep, viewport, setOpen]);

  const select = useCallback((seq: number | null) => {
    requestRef.current++;
    setTargetSeq(null);
    setSelectedSeq(seq);
  }, []);

  const selectNext = useCallback(
    async (from: number, step: 1 | -1) => {
      const request = ++requestRef.current;
      setTargetSeq(null);
      const row = await nextRow(log, isSingleStep, from, step);
      if (row === null || request !== requestRef.current) return;
      setSelectedSeq(row);
      viewport.scrollIntoView(row);
    },
    [log, isSingleStep, viewport],
  );
  const move = (step: 1 | -1) => {
    const isInSight = selectedSeq !== null && selectedSeq >= viewport.range.from && selectedSeq <= viewport.range.to;
    if (isInSight) void selectNext(selectedSeq + step, step);
    else void selectNext(step > 0 ? viewport.first : viewport.last, step);
  };
  useEffect(
    () => () => {
      requestRef.current++;
    },
    [],
  );
  return {
    selectedSeq,
    select,
    goTo,
    move,
    toStart: () => void selectNext(1, 1),
    toEnd: () => {
      viewport.toEnd();
      const request = ++requestRef.current;
      void nextRow(log, isSingleStep, log.lastSeq, -1).then(
        (row) => request === requestRef.current && setSelectedSeq(row),
      );
    },
  };
}

/** Whether an event is visible only when its row is expanded. */
const hidesEvent = (row: Row, seq: number) => row.seq !== seq || isInExpandAll(row);

/** Return the next row that shows something, from `from` on. */
async function nextRow(log: RunLog, isSingleStep: boolean, from: number, step: 1 | -1): Promise<number | null> {
  let seq = from;
  while (seq >= 1 && seq <= log.lastSeq) {
    const number = pageOf(seq);
    await log.load(seq, seq);
    const page = log.page(number);
    if (!page) return null;
    const rows = [...rowsOf(page, isSingleStep).keys()];
    const found =
      step > 0 ? rows.find((candidate) => candidate >= seq) : rows.findLast((candidate) => candidate <= seq);
    if (found !== undefined) return found;
    seq = step > 0 ? (number + 1) * PAGE_EVENTS + 1 : number * PAGE_EVENTS;
  }
  return null;
}
