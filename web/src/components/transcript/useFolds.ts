/** Which rows are expanded: by the user, by "Expand all", or by default. */
import { useCallback, useState } from "react";
import { pageOf, type RunLog } from "@/api";
import { isFolding, opens, opensByItself, opensWithAll, type Row } from "@/views/transcriptRows";
import { rowsOf } from "@/views/transcript";

interface Folds {
  readonly all: boolean | null;
  readonly chosen: ReadonlyMap<number, boolean>;
}

export interface UsedFolds {
  isOpen: (row: Row) => boolean;
  setOpen: (seq: number, open: boolean) => void;
  /** Whether "Expand all" is on. */
  all: boolean;
  setAll: (open: boolean) => void;
}

export function useFolds(): UsedFolds {
  const [folds, change] = useState<Folds>({ all: null, chosen: new Map() });
  const setOpen = useCallback(
    (seq: number, open: boolean) => change((before) => ({ ...before, chosen: new Map(before.chosen).set(seq, open) })),
    [],
  );
  const setAll = useCallback((all: boolean) => change({ all, chosen: new Map() }), []);
  const isOpen = (row: Row) =>
    isFolding(row) &&
    (folds.chosen.get(row.seq) ?? (folds.all !== null && opensWithAll(row) ? folds.all : opensByItself(row)));
  return { isOpen, setOpen, all: folds.all === true, setAll };
}

/** Whether there is a row to expand with "Expand all". Pages that are not loaded may have one. */
export function canOpen(log: RunLog, bare: boolean): boolean {
  for (let number = 0; number <= pageOf(log.lastSeq); number++) {
    const page = log.page(number);
    if (!page || [...rowsOf(page, bare).values()].some(opens)) return true;
  }
  return false;
}
