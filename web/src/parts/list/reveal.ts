/** Loads the part of the list in which the chosen run is, and finds the last run of a list that is not all loaded. */
import { useQuery } from "@tanstack/react-query";
import { type RefObject, useCallback, useEffect, useRef, useState } from "react";
import { lastRun, type RunFilter, runQuery } from "@/api";
import { fits } from "@/api/lists";
import { indexOf, type Row } from "@/views/tree";

/** More rows than this are not loaded for one run: it is shown, and the list stays where it is. */
const ROWS_MOST = 50_000;

interface List {
  readonly rows: readonly Row[];
  readonly filter: RunFilter;
  /** Loads the next page; null where there is none, or where it is on its way. */
  readonly onEnd: (() => void) | null;
  readonly box: RefObject<HTMLElement | null>;
}

/** Loads pages until the run is there. Stops when somebody scrolls the list. */
export function useReveal(runId: string | undefined, { rows, filter, onEnd, box }: List): void {
  const isHidden = runId !== undefined && indexOf(rows, runId) < 0;
  // Asked for beside the list, and above a run in a tree: one that was deleted is not asked for again.
  const goal = useQuery({ ...runQuery(runId ?? ""), enabled: false }).data;
  const [stopped, setStopped] = useState<string>();
  const isLeft = runId === undefined || stopped === runId;
  useEffect(() => {
    const element = box.current;
    if (!element || isLeft) return;
    const stop = () => setStopped(runId);
    element.addEventListener("wheel", stop, { passive: true });
    element.addEventListener("touchmove", stop, { passive: true });
    return () => {
      element.removeEventListener("wheel", stop);
      element.removeEventListener("touchmove", stop);
    };
  });
  const last = rows.findLast((row) => row.kind === "run" && row.depth === 0);
  const isFurther =
    filter.q !== undefined || (last?.kind === "run" && goal !== undefined && last.run.started_at >= goal.started_at);
  const wanted =
    isHidden &&
    !isLeft &&
    goal !== undefined &&
    isFurther &&
    fits({ ...goal, snippet: null }, filter) &&
    rows.length < ROWS_MOST;
  useEffect(() => {
    // On a narrow screen the run is shown instead of the list.
    if (wanted && onEnd && box.current?.clientHeight) onEnd();
  }, [wanted, onEnd, box]);
}

/** Chooses the last run of the list, also where it is not loaded yet. The newest wish counts. */
export function useToLast(filter: RunFilter, total: number | undefined, move: (runId: string) => void): () => void {
  const asked = useRef<AbortController>(null);
  const wanted = JSON.stringify(filter);
  useEffect(() => () => asked.current?.abort(), [wanted]);
  return useCallback(() => {
    asked.current?.abort();
    const control = new AbortController();
    asked.current = control;
    void lastRun(JSON.parse(wanted) as RunFilter, total ?? 0, control.signal).then(
      (run) => {
        if (run && !control.signal.aborted) move(run.id);
      },
      // The list itself says that it cannot be had.
      () => undefined,
    );
  }, [wanted, total, move]);
}
