/** Load the part of the list that has the selected run, and find the last run of a list that is not fully loaded. */
import { useQuery } from "@tanstack/react-query";
import { type RefObject, useCallback, useEffect, useRef, useState } from "react";
import { fetchLastRun, type RunFilter, runQuery } from "@/api";
import { matchesFilter } from "@/api/runPages";
import { indexOf, type Row } from "@/views/runRows";

/** With more rows than this, stop loading pages for one run: the run is shown, and the list stays. */
const MAX_ROWS = 50_000;

interface List {
  readonly rows: readonly Row[];
  readonly filter: RunFilter;
  /** Load the next page; null if there is none, or while it is loading. */
  readonly fetchNext: (() => void) | null;
  readonly boxRef: RefObject<HTMLElement | null>;
}

/** Load pages until the run is in the list. Stops when the user scrolls. */
export function useLoadSelected(runId: string | undefined, { rows, filter, fetchNext, boxRef }: List): void {
  const isMissing = runId !== undefined && indexOf(rows, runId) < 0;
  // Never fetched here: the detail pane fetches the run, and a deleted run must not be requested again.
  const run = useQuery({ ...runQuery(runId ?? ""), enabled: false }).data;
  const [stoppedId, setStoppedId] = useState<string>();
  const isStopped = runId === undefined || stoppedId === runId;
  useEffect(() => {
    const element = boxRef.current;
    if (!element || isStopped) return;
    const stop = () => setStoppedId(runId);
    element.addEventListener("wheel", stop, { passive: true });
    element.addEventListener("touchmove", stop, { passive: true });
    return () => {
      element.removeEventListener("wheel", stop);
      element.removeEventListener("touchmove", stop);
    };
  });
  const last = rows.findLast((row) => row.kind === "run" && row.depth === 0);
  const isFurtherDown =
    filter.q !== undefined || (last?.kind === "run" && run !== undefined && last.run.started_at >= run.started_at);
  const shouldLoad =
    isMissing &&
    !isStopped &&
    run !== undefined &&
    isFurtherDown &&
    matchesFilter({ ...run, snippet: null }, filter) &&
    rows.length < MAX_ROWS;
  useEffect(() => {
    // A narrow screen shows the run instead of the list.
    if (shouldLoad && fetchNext && boxRef.current?.clientHeight) fetchNext();
  }, [shouldLoad, fetchNext, boxRef]);
}

/**
 * Return a function that selects the last run of the list, also if it is not loaded, and why that failed. The newest
 * call wins.
 */
export function useSelectLast(
  filter: RunFilter,
  total: number | undefined,
  move: (runId: string) => void,
): { selectLast: () => void; error: unknown } {
  const requestRef = useRef<AbortController>(null);
  const [error, setError] = useState<unknown>(null);
  const filterJson = JSON.stringify(filter);
  useEffect(
    () => () => {
      requestRef.current?.abort();
      setError(null);
    },
    [filterJson],
  );
  const selectLast = useCallback(() => {
    requestRef.current?.abort();
    const control = new AbortController();
    requestRef.current = control;
    setError(null);
    void fetchLastRun(JSON.parse(filterJson) as RunFilter, total ?? 0, control.signal).then(
      (run) => {
        if (run && !control.signal.aborted) move(run.id);
      },
      (problem: unknown) => {
        if (!control.signal.aborted) setError(problem);
      },
    );
  }, [filterJson, total, move]);
  return { selectLast, error };
}
