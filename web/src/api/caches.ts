/** What rows and events that come live do to what was asked before. */
import type { Query, QueryClient } from "@tanstack/react-query";
import { Problem } from "./http";
import { type Pages, patched, without } from "./lists";
import type { RunFilter } from "./runs";
import type { LogEvent, Run, RunDetail } from "./types";

/** How soon a list is asked for again where a changed row leaves it unsure, and a search, in milliseconds. */
const UNSURE_MS = 5_000;
const SEARCH_MS = 10_000;

/** Rows that have changed, newest last: lists and details that know them, or should, are told. */
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

/** Runs that are gone: no list has them any more, and where one is looked at, it is said. */
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

/** What the server would answer, without asking it. */
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
    // What was to be asked for again still is: a changed row makes the others no newer.
    const wasInvalid = query.state.isInvalidated;
    queries.setQueryData<Pages>(query.queryKey, pages, { updatedAt: query.state.dataUpdatedAt });
    if (wasInvalid) query.invalidate();
  };
  apply();
  // An answer that is under way joins what was known when it was asked for: the change has to be made to that, too.
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
  // The rest of a detail (its result, what it waits for) is not in a row.
  if (known.status === run.status && run.status !== "waiting") return;
  for (const what of ["run", "timeline", "spans"]) void queries.invalidateQueries({ queryKey: [what, run.id] });
}

/** The runs that wait, as far as they were told of. */
const waits = new Set<string>();

/** What a run waits for is also in the details of the runs above it, and their own rows do not change with it. */
function tellRelatives(queries: QueryClient, { id, root_run_id: root, parent_run_id: parent, status }: Run): void {
  const isWaiting = status === "waiting";
  // It may wait for something else than before: what was between is not always told.
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

/** An event of a run that is looked at: its timeline has more rows, soon. */
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
