/** Apply rows and events from the live stream to cached query results. */
import type { Query, QueryClient } from "@tanstack/react-query";
import { Problem } from "./http";
import { type Pages, patched, without } from "./runPages";
import type { RunFilter } from "./requests";
import type { LogEvent, Run, RunDetail } from "./types";

/** How soon a list is fetched again when a changed row leaves its total or order unknown; a search waits longer. */
const UNSURE_MS = 5_000;
const SEARCH_MS = 10_000;

/** Apply changed rows, newest last, to every cached list and run detail they belong to. */
export function patchRuns(queries: QueryClient, changed: readonly Run[]): void {
  const newest = new Map(changed.map((run) => [run.id, run]));
  for (const query of queries.getQueryCache().findAll({ queryKey: ["runs"] })) {
    change(queries, query, (pages) => patched(pages, query.queryKey[1] as RunFilter, newest));
  }
  for (const run of newest.values()) {
    patchDetail(queries, run);
    tellRelatives(queries, run);
  }
}

/** Remove deleted runs from every cached list, and show "not found" where one of them is open. */
export function forgetRuns(queries: QueryClient, gone: readonly string[]): void {
  const ids = new Set(gone);
  for (const query of queries.getQueryCache().findAll({ queryKey: ["runs"] })) {
    change(queries, query, (pages) => ({ pages: without(pages, ids), unsure: false }));
  }
  for (const id of ids) {
    for (const query of queries.getQueryCache().findAll({ queryKey: ["run", id], type: "active" })) tellGone(query);
    for (const what of ["run", "timeline", "spans"]) queries.removeQueries({ queryKey: [what, id], type: "inactive" });
  }
}

/** Set the error that the server would answer, without a request. */
function tellGone(query: Query): void {
  void query.cancel({ silent: true });
  const error = new Problem("run_not_found", "This run was deleted.", null, 404);
  query.setState({ data: undefined, error, status: "error", fetchStatus: "idle" });
}

type Change = (pages: Pages) => { pages: Pages; unsure: boolean };

function change(queries: QueryClient, query: Query, make: Change): void {
  const apply = () => {
    const before = queries.getQueryData<Pages>(query.queryKey);
    if (!before) return;
    const { pages, unsure } = make(before);
    if (unsure) refreshSoon(queries, query);
    if (pages === before) return;
    // A changed row does not make the other rows fresh: keep the query marked for a refetch.
    const wasInvalid = query.state.isInvalidated;
    queries.setQueryData<Pages>(query.queryKey, pages, { updatedAt: query.state.dataUpdatedAt });
    if (wasInvalid) query.invalidate();
  };
  apply();
  // A running fetch merges its answer with the data from before the change, so apply the change again after it.
  if (query.state.fetchStatus === "fetching") void query.promise?.then(() => setTimeout(apply), ignore);
}

const ignore = () => undefined;
const refreshing = new WeakSet<Query>();

function refreshSoon(queries: QueryClient, query: Query): void {
  if (refreshing.has(query)) return;
  refreshing.add(query);
  const isSearch = (query.queryKey[1] as RunFilter).q !== undefined;
  setTimeout(
    () => {
      refreshing.delete(query);
      void queries.invalidateQueries({ queryKey: query.queryKey, exact: true });
    },
    isSearch ? SEARCH_MS : UNSURE_MS,
  );
}

function patchDetail(queries: QueryClient, { snippet, ...run }: Run): void {
  const known = queries.getQueryData<RunDetail>(["run", run.id]);
  if (!known) return;
  queries.setQueryData<RunDetail>(["run", run.id], { ...known, ...run });
  // A row lacks the rest of a detail: the result and the calls it waits for.
  if (known.status === run.status && run.status !== "waiting") return;
  for (const what of ["run", "timeline", "spans"]) void queries.invalidateQueries({ queryKey: [what, run.id] });
}

/** Runs known to be waiting. */
const waits = new Set<string>();

/**
 * Refetch the details of the runs above: they list the calls of their sub-runs, but their own rows do not change with
 * them.
 */
function tellRelatives(queries: QueryClient, { id, root_run_id: root, parent_run_id: parent, status }: Run): void {
  const isWaiting = status === "waiting";
  // A run that waits again may wait for another call; the rows in between are not always delivered.
  if (parent === null || (!isWaiting && !waits.has(id))) return;
  if (isWaiting) waits.add(id);
  else waits.delete(id);
  for (const query of queries.getQueryCache().findAll({ queryKey: ["run"] })) {
    const known = query.state.data as RunDetail | undefined;
    if (known && known.id !== id && known.root_run_id === root && known.completed_at === null) {
      void queries.invalidateQueries({ queryKey: query.queryKey, exact: true });
    }
  }
}

const waiting = new Map<string, ReturnType<typeof setTimeout>>();
const TIMELINE_MS = 500;

/** Refetch the timeline and spans of a run soon after one of its events arrived. */
export function retimed(queries: QueryClient, runId: string, event: LogEvent): void {
  if (event.type.startsWith("message.") || waiting.has(runId)) return;
  waiting.set(
    runId,
    setTimeout(() => {
      waiting.delete(runId);
      void queries.invalidateQueries({ queryKey: ["timeline", runId] });
      void queries.invalidateQueries({ queryKey: ["spans", runId] });
    }, TIMELINE_MS),
  );
}
