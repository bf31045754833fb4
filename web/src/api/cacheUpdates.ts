/** Apply rows and events from the live stream to cached query results. */
import type { Query, QueryClient } from "@tanstack/react-query";
import { Problem } from "./http";
import { type MergedPages, type Pages, mergeRows, withoutRuns } from "./runPages";
import type { RunFilter } from "./requests";
import type { LogEvent, Run, RunDetail, WaitingList } from "./types";

/** How soon a list is fetched again when a changed row leaves its total or order unknown; a search or another order waits longer. */
const REFETCH_MS = 5_000;
const SEARCH_REFETCH_MS = 10_000;

/** Apply changed rows, newest last, to every cached list and run detail they belong to. */
export function patchRuns(queries: QueryClient, changed: readonly Run[]): void {
  const newest = new Map(changed.map((run) => [run.id, run]));
  for (const query of queries.getQueryCache().findAll({ queryKey: ["runs"] })) {
    updateList(queries, query, (pages) => mergeRows(pages, query.queryKey[1] as RunFilter, newest));
  }
  for (const run of newest.values()) {
    patchDetail(queries, run);
    refetchAncestors(queries, run);
  }
  refetchSoonOnce(queries, "counts");
  refetchWaiting(
    queries,
    (id) => newest.has(id) || changed.some(({ based_on: earlier }) => earlier?.run_id === id),
    changed.some(({ status, asks }) => status === "waiting" || status === "failed" || asks !== null),
  );
}

/** Fetch again what waits for a person, if one of the changed runs may wait or has waited. */
function refetchWaiting(queries: QueryClient, isChanged: (runId: string) => boolean, mayWait = false): void {
  const known = queries.getQueryData<WaitingList>(["waiting"]);
  if (mayWait || known?.items.some(({ run_id }) => isChanged(run_id))) refetchSoonOnce(queries, "waiting");
}

/** How soon the numbers of runs, and what waits for a person, are fetched again after a row changed. */
const REFETCH_SOON_MS = { counts: 1_000, waiting: 200 };
const scheduledKinds = new WeakMap<QueryClient, Set<string>>();

/** Fetch again soon. Further changes until then, and while the answer is on its way, neither delay nor cancel the fetch. */
function refetchSoonOnce(queries: QueryClient, kind: keyof typeof REFETCH_SOON_MS): void {
  const scheduled = scheduledKinds.get(queries) ?? new Set();
  scheduledKinds.set(queries, scheduled);
  if (scheduled.has(kind)) return;
  scheduled.add(kind);
  setTimeout(() => {
    scheduled.delete(kind);
    // A fetch that began before the last change may not have it: fetch once more after it.
    if (queries.isFetching({ queryKey: [kind] })) refetchSoonOnce(queries, kind);
    else void queries.invalidateQueries({ queryKey: [kind] });
  }, REFETCH_SOON_MS[kind]);
}

/** Remove deleted runs from every cached list, and show "not found" if one of them is open. */
export function removeRuns(queries: QueryClient, deletedIds: readonly string[]): void {
  const ids = new Set(deletedIds);
  refetchSoonOnce(queries, "counts");
  refetchWaiting(queries, (id) => ids.has(id));
  for (const query of queries.getQueryCache().findAll({ queryKey: ["runs"] })) {
    updateList(queries, query, (pages) => ({ pages: withoutRuns(pages, ids), needsRefetch: false }));
  }
  for (const id of ids) {
    for (const query of queries.getQueryCache().findAll({ queryKey: ["run", id], type: "active" })) setNotFound(query);
    for (const kind of ["run", "timeline", "spans"]) queries.removeQueries({ queryKey: [kind, id], type: "inactive" });
  }
}

/** Set the error that the server would answer, without a request. */
function setNotFound(query: Query): void {
  void query.cancel({ silent: true });
  const error = new Problem("run_not_found", "This run was deleted.", null, 404);
  query.setState({ data: undefined, error, status: "error", fetchStatus: "idle" });
}

type PagesUpdate = (pages: Pages) => MergedPages;

function updateList(queries: QueryClient, query: Query, update: PagesUpdate): void {
  const apply = () => {
    const before = queries.getQueryData<Pages>(query.queryKey);
    if (!before) return;
    const { pages, needsRefetch } = update(before);
    if (needsRefetch) refetchSoon(queries, query);
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
const scheduledRefetches = new WeakSet<Query>();

function refetchSoon(queries: QueryClient, query: Query): void {
  if (scheduledRefetches.has(query)) return;
  scheduledRefetches.add(query);
  const { q, sort } = query.queryKey[1] as RunFilter;
  setTimeout(
    () => {
      scheduledRefetches.delete(query);
      void queries.invalidateQueries({ queryKey: query.queryKey, exact: true });
    },
    q !== undefined || sort !== undefined ? SEARCH_REFETCH_MS : REFETCH_MS,
  );
}

function patchDetail(queries: QueryClient, row: Run): void {
  const query = queries.getQueryCache().find({ queryKey: ["run", row.id], exact: true });
  if (!query) return;
  // The answer of a running fetch may be older than the row, so apply the row again after it.
  const answer = query.state.fetchStatus === "fetching" ? query.promise : undefined;
  applyRow(queries, row);
  void answer?.then(() => setTimeout(applyRow, 0, queries, row), ignore);
}

function applyRow(queries: QueryClient, { snippet, ...run }: Run): void {
  const known = queries.getQueryData<RunDetail>(["run", run.id]);
  // A run that has ended stays so: the row is older than what is known.
  if (!known || (known.completed_at !== null && run.completed_at === null)) return;
  queries.setQueryData<RunDetail>(["run", run.id], { ...known, ...run });
  // A row lacks the rest of a detail: the result and the calls it waits for.
  if (known.status === run.status && run.status !== "waiting") return;
  for (const kind of ["run", "timeline", "spans"]) void queries.invalidateQueries({ queryKey: [kind, run.id] });
}

/** Runs known to be waiting. */
const waitingRuns = new Set<string>();

/**
 * Refetch the details of the runs above: they list the calls of their sub-runs, but their own rows do not change with
 * them.
 */
function refetchAncestors(queries: QueryClient, { id, root_run_id: root, parent_run_id: parent, status }: Run): void {
  const isWaiting = status === "waiting";
  // A run that waits again may wait for another call; the rows in between are not always delivered.
  if (parent === null || (!isWaiting && !waitingRuns.has(id))) return;
  if (isWaiting) waitingRuns.add(id);
  else waitingRuns.delete(id);
  for (const query of queries.getQueryCache().findAll({ queryKey: ["run"] })) {
    const known = query.state.data as RunDetail | undefined;
    if (known && known.id !== id && known.root_run_id === root && known.completed_at === null) {
      void queries.invalidateQueries({ queryKey: query.queryKey, exact: true });
    }
  }
}

const timelineTimers = new Map<string, ReturnType<typeof setTimeout>>();
const TIMELINE_REFETCH_MS = 500;

/** Refetch the timeline and spans of a run soon after one of its events arrived. */
export function refetchTimelineSoon(queries: QueryClient, runId: string, event: LogEvent): void {
  if (event.type.startsWith("message.") || timelineTimers.has(runId)) return;
  timelineTimers.set(
    runId,
    setTimeout(() => {
      timelineTimers.delete(runId);
      void queries.invalidateQueries({ queryKey: ["timeline", runId] });
      void queries.invalidateQueries({ queryKey: ["spans", runId] });
    }, TIMELINE_REFETCH_MS),
  );
}
