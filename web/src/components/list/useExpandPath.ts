/** Expand the runs above the selected run in the tree. */
import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { runQuery } from "@/api";
import { type Branch, lastInSight, type Row } from "@/views/runRows";

interface Tree {
  readonly rows: readonly Row[];
  readonly branches: ReadonlyMap<string, Branch>;
  readonly open: (runIds: readonly string[]) => void;
  readonly more: (parent: string) => void;
}

const NOWHERE: readonly string[] = [];

/**
 * Expand once for each selection, so that a run the user collapses again stays collapsed. `tree` is null where the list
 * is no tree. Return the root of the selected run once it is known: the list itself has only roots.
 */
export function useOpening(chosen: string | undefined, tree: Tree | null): string | undefined {
  const queries = useQueryClient();
  const [found, setFound] = useState(NOWHERE);
  const latest = useRef(tree);
  useEffect(() => {
    latest.current = tree;
  });
  const inTree = tree !== null;
  const way = inTree && found.at(-1) === chosen ? found : NOWHERE;
  useEffect(() => {
    if (!inTree || chosen === undefined) return;
    let stale = false;
    const open = (way: readonly string[]) => {
      if (stale) return;
      latest.current?.open(way.slice(0, -1));
      setFound(way);
    };
    // The detail pane shows the error of a run that cannot be loaded.
    wayTo(queries, chosen).then(open, () => undefined);
    return () => {
      stale = true;
    };
  }, [queries, chosen, inTree]);

  // The next run of the path may be on a page of sub-runs that is not loaded yet.
  const parent = tree === null ? undefined : lastInSight(tree.rows, way);
  const known = parent === undefined ? undefined : tree?.branches.get(parent);
  const count = known?.runs.length;
  const hasMore = useRef(false);
  useEffect(() => {
    hasMore.current = known?.state === "more";
  });
  useEffect(() => {
    // Once for each page, so that a failing request is not repeated forever.
    if (parent !== undefined && hasMore.current) latest.current?.more(parent);
  }, [parent, count]);
  return way[0];
}

/** Return the path from the root run down to this run. */
async function wayTo(queries: QueryClient, runId: string): Promise<readonly string[]> {
  const way = [runId];
  for (
    let parent = await parentOf(queries, runId);
    parent !== null && !way.includes(parent);
    parent = await parentOf(queries, parent)
  ) {
    way.unshift(parent);
  }
  return way;
}

const parentOf = async (queries: QueryClient, runId: string) =>
  (await queries.query({ ...runQuery(runId), staleTime: "static" })).parent_run_id;
