/** Which rows are expanded: by the user, by "Expand all", or by default. */
import { useCallback } from "react";
import { pageOf, type RunLog } from "@/api";
import { isFoldable, canExpand, isOpenByDefault, isInExpandAll, type Row } from "@/views/rowTypes";
import { useRowState } from "./rowState";
import { rowsOf } from "@/views/transcriptRows";

interface FoldState {
  readonly expandAll: boolean | null;
  readonly bySeq: ReadonlyMap<number, boolean>;
}

export interface Folds {
  isOpen: (row: Row) => boolean;
  /** Whether a call inside of another row is open. Its number may also be that of the row, which has a fold of its own. */
  isOpenInside: (row: Row) => boolean;
  setOpen: (seq: number, open: boolean) => void;
  /** Whether "Expand all" is on. */
  expandAll: boolean;
  setAll: (open: boolean) => void;
}

const NO_FOLDS: FoldState = { expandAll: null, bySeq: new Map() };

/** Return the folds of a transcript; those of a nested one are kept while its row is out of sight. */
export function useFolds(): Folds {
  const [folds, setFolds] = useRowState("folds", NO_FOLDS);
  const setOpen = useCallback(
    (seq: number, open: boolean) => setFolds((before) => ({ ...before, bySeq: new Map(before.bySeq).set(seq, open) })),
    [setFolds],
  );
  const setAll = useCallback((expandAll: boolean) => setFolds(() => ({ expandAll, bySeq: new Map() })), [setFolds]);
  const isOpen = (row: Row) =>
    isFoldable(row) &&
    (folds.bySeq.get(row.seq) ??
      (folds.expandAll !== null && isInExpandAll(row) ? folds.expandAll : isOpenByDefault(row)));
  const isOpenInside = (row: Row) => folds.bySeq.get(insideKey(row.seq)) ?? folds.expandAll === true;
  return { isOpen, isOpenInside, setOpen, expandAll: folds.expandAll === true, setAll };
}

/** The key of the fold of a call inside of another row. */
export const insideKey = (seq: number) => -seq;

/** Whether there is a row to expand with "Expand all". Pages that are not loaded may have one. */
export function canExpandAny(log: RunLog, isSingleStep: boolean): boolean {
  for (let number = 0; number <= pageOf(log.lastSeq); number++) {
    const page = log.page(number);
    if (!page || [...rowsOf(page, isSingleStep).values()].some(canExpand)) return true;
  }
  return false;
}
