/** Load the part of the list that has the selected run, and find the last run of a list that is not fully loaded. */
import { useQuery } from "@tanstack/react-query";
import { type RefObject, useCallback, useEffect, useRef, useState } from "react";
import { lastRun, type RunFilter, runQuery } from "@/api";
import { fits } from "@/api/runPages";
import { indexOf, type Row } from "@/views/runRows";

/** With more rows than this, stop loading pages for one run: the run is shown, and the list stays. */
const ROWS_MOST = 50_000;

interface List {
  readonly rows: readonly Row[];
  readonly filter: RunFilter;
  /** Load the next page; null where there is none, or while it is loading. */
  readonly onEnd: (() => void) | null;
  readonly box: RefObject<HTMLElement | null>;
}

/** Load pages until the run is in the list. Stops when the user scrolls. */
export function useReveal(runId: string | undefined, { rows, filter, onEnd, box }: List): void {
  const isHidden = runId !== undefined && indexOf(rows, runId) < 0;
  // Never fetched here: the detail pane fetches the run, and a deleted run must not be requested again.
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
    // A narrow screen shows the run instead of the list.
    if (wanted && onEnd && box.current?.clientHeight) onEnd();
  }, [wanted, onEnd, box]);
}

/** Return a function that selects the last run of the list, also where it is not loaded. The newest call wins. */
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
      // The list itself shows the error.
      () => undefined,
    );
  }, [wanted, total, move]);
}
