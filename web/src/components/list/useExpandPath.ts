/** Expand the runs above the selected run in the tree. */
import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { runQuery } from "@/api";
import { type Branch, lastVisible, type Row } from "@/views/runRows";

interface Tree {
  readonly rows: readonly Row[];
  readonly branches: ReadonlyMap<string, Branch>;
  readonly expand: (runIds: readonly string[]) => void;
  readonly loadMore: (parent: string) => void;
}

const NO_PATH: readonly string[] = [];

/**
 * Expand once for each selection, so that a run the user collapses again stays collapsed. `tree` is null if the list
 * is no tree. Return the root of the selected run once it is known: the list itself has only roots.
 */
export function useExpandPath(selectedId: string | undefined, tree: Tree | null): string | undefined {
  const queries = useQueryClient();
  const [foundPath, setFoundPath] = useState(NO_PATH);
  const treeRef = useRef(tree);
  useEffect(() => {
    treeRef.current = tree;
  });
  const isTree = tree !== null;
  const path = isTree && foundPath.at(-1) === selectedId ? foundPath : NO_PATH;
  useEffect(() => {
    if (!isTree || selectedId === undefined) return;
    let isStale = false;
    const expand = (path: readonly string[]) => {
      if (isStale) return;
      treeRef.current?.expand(path.slice(0, -1));
      setFoundPath(path);
    };
    // The detail pane shows the error of a run that cannot be loaded.
    pathTo(queries, selectedId).then(expand, () => undefined);
    return () => {
      isStale = true;
    };
  }, [queries, selectedId, isTree]);

  // The next run of the path may be on a page of sub-runs that is not loaded yet.
  const parent = tree === null ? undefined : lastVisible(tree.rows, path);
  const branch = parent === undefined ? undefined : tree?.branches.get(parent);
  const count = branch?.runs.length;
  const hasMoreRef = useRef(false);
  useEffect(() => {
    hasMoreRef.current = branch?.state === "more";
  });
  useEffect(() => {
    // Once for each page, so that a failing request is not repeated forever.
    if (parent !== undefined && hasMoreRef.current) treeRef.current?.loadMore(parent);
  }, [parent, count]);
  return path[0];
}

/** Return the path from the root run down to this run. */
async function pathTo(queries: QueryClient, runId: string): Promise<readonly string[]> {
  const path = [runId];
  for (
    let parent = await parentOf(queries, runId);
    parent !== null && !path.includes(parent);
    parent = await parentOf(queries, parent)
  ) {
    path.unshift(parent);
  }
  return path;
}

const parentOf = async (queries: QueryClient, runId: string) =>
  (await queries.query({ ...runQuery(runId), staleTime: "static" })).parent_run_id;
