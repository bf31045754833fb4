/** Opens what hides the chosen run in the tree: the runs above it. */
import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { runQuery } from "@/api";
import { type Branch, lastInSight, type Row } from "@/views/tree";

interface Tree {
  readonly rows: readonly Row[];
  readonly branches: ReadonlyMap<string, Branch>;
  readonly open: (runIds: readonly string[]) => void;
  readonly more: (parent: string) => void;
}

const NOWHERE: readonly string[] = [];

/**
 * Once for each choice, so that who closes it again is left alone. `tree` is null where the list is none. The run above
 * all others is returned, once it is known: it is the one that the list itself has.
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
    // Where a run cannot be had, the page says so at its place.
    wayTo(queries, chosen).then(open, () => undefined);
    return () => {
      stale = true;
    };
  }, [queries, chosen, inTree]);

  // Of many that a run called, the one may be on a page that is not there yet.
  const parent = tree === null ? undefined : lastInSight(tree.rows, way);
  const known = parent === undefined ? undefined : tree?.branches.get(parent);
  const count = known?.runs.length;
  const hasMore = useRef(false);
  useEffect(() => {
    hasMore.current = known?.state === "more";
  });
  useEffect(() => {
    // Once for each page: what cannot be had is not asked for again and again.
    if (parent !== undefined && hasMore.current) latest.current?.more(parent);
  }, [parent, count]);
  return way[0];
}

/** The runs from the one that nobody called down to this one. */
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
