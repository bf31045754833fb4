/**
 * Lists of runs in pages, newest first, and how changed rows and refetched pages are merged into them. Each page
 * continues where the previous one ended, so new runs never shift the loaded pages.
 */
import type { InfiniteData } from "@tanstack/react-query";
import { startOf } from "@/views/days";
import type { RunFilter } from "./requests";
import type { Run, RunList } from "./types";

export type Pages = InfiniteData<RunList, string | null>;

export const LIST_PAGE = 100;
/** The largest page that the server returns. */
const LARGE_PAGE = 500;
const SMALL_PAGES = 5;

/**
 * Return the size of the next page: the first pages are small, the later ones large, so that scrolling far takes few
 * requests.
 */
export function pageSize(known: Pages | undefined, cursor: string | null): number {
  const index = known ? known.pageParams.indexOf(cursor) : 0;
  return (index < 0 ? (known?.pages.length ?? 0) : index) < SMALL_PAGES ? LIST_PAGE : LARGE_PAGE;
}

export interface MergedPages {
  readonly pages: Pages;
  /** Whether only the server knows the total now, or which runs a search finds. */
  readonly needsRefetch: boolean;
}

/**
 * Merge changed rows into the pages: replace known rows, insert new ones, remove those that no longer match the filter.
 */
export function mergeRows(pages: Pages, filter: RunFilter, newest: ReadonlyMap<string, Run>): MergedPages {
  const known = new Set<string>();
  const movedRuns: Run[] = [];
  let removedCount = 0;
  const updated = pages.pages.map((page) => {
    if (!hasAny(page, newest)) return page;
    const workers = page.workers.flatMap((run) => {
      const changed = newest.get(run.id);
      if (!changed) return [run];
      if (known.has(run.id)) return [];
      known.add(run.id);
      if (!matchesFilter(changed, filter)) {
        removedCount += 1;
        return [];
      }
      const stays = !isByTime(filter) || changed.started_at === run.started_at;
      if (!stays) movedRuns.push(changed);
      return stays ? [{ ...changed, snippet: run.snippet }] : [];
    });
    return { ...page, workers };
  });
  const unknownRuns = [...newest.values()].filter((run) => !known.has(run.id));
  if (!isByTime(filter))
    return { pages: withTotal(pages, updated, -removedCount), needsRefetch: unknownRuns.length > 0 };
  for (const run of movedRuns) insertByTime(updated, run);
  const addedCount = unknownRuns.filter((run) => matchesFilter(run, filter) && insertByTime(updated, run)).length;
  return {
    pages: withTotal(pages, updated, addedCount - removedCount),
    needsRefetch: unknownRuns.some((run) => isOlderThanLoaded(pages, run)),
  };
}

/** Whether the newest run is first. Otherwise only the server knows whether a run is in the list, and where. */
const isByTime = (filter: RunFilter) =>
  filter.q === undefined && filter.sort === undefined && filter.errorGroup === undefined;

/** Return the pages without deleted runs. */
export function withoutRuns(pages: Pages, deletedIds: ReadonlySet<string>): Pages {
  let removedCount = 0;
  const updated = pages.pages.map((page) => {
    const workers = page.workers.filter((run) => !deletedIds.has(run.id));
    removedCount += page.workers.length - workers.length;
    return workers.length === page.workers.length ? page : { ...page, workers };
  });
  return withTotal(pages, updated, -removedCount);
}

/** Whether a run matches a filter, as far as its row tells. Only the server knows what a search finds. */
export function matchesFilter(run: Run, filter: RunFilter, now = Date.now()): boolean {
  return (
    (filter.owner === undefined || run.agent_id === filter.owner) &&
    (filter.status === undefined || run.status === filter.status) &&
    (filter.worker === undefined || run.name === filter.worker) &&
    (filter.channel === undefined || run.channel_id === filter.channel) &&
    (filter.model === undefined || run.model === filter.model) &&
    (filter.provider === undefined || run.provider === filter.provider) &&
    (filter.error === undefined || run.error?.code === filter.error) &&
    isWithin(run.started_at, startOf(filter.since, now), filter.until) &&
    isWithin(run.completed_at, startOf(filter.endedSince, now), filter.endedUntil) &&
    isBetween(run.tree_cost_usd, filter.minCost, filter.maxCost) &&
    isBetween(run.completed_at === null ? null : run.duration_ms, filter.minDurationMs, filter.maxDurationMs) &&
    (filter.parent === undefined || run.parent_run_id === filter.parent) &&
    (!filter.roots || run.parent_run_id === null)
  );
}

/** Whether a time is in a range. A time that has not come is in no range that has a bound. */
const isWithin = (at: string | null, since: string | undefined, until: string | undefined) =>
  (since === undefined || (at !== null && Date.parse(at) >= Date.parse(since))) &&
  (until === undefined || (at !== null && Date.parse(at) < Date.parse(until)));

/** Whether a number is in a range. An unknown number is in no range that has a bound. */
const isBetween = (value: number | null, min: number | undefined, max: number | undefined) =>
  (min === undefined || (value !== null && value >= min)) && (max === undefined || (value !== null && value <= max));

/** From this page on, a filtered list is not refetched for runs that began to match. */
const REFETCHED_PAGES = 5;

/** The filters that a run begins to match while it is executed, and the orders in which it moves. */
const GROWING = [
  "q",
  "status",
  "sort",
  "model",
  "provider",
  "error",
  "minCost",
  "minDurationMs",
  "endedSince",
] as const;

/** Return a known page whose runs have all ended: the page cannot change and need not be fetched again. */
export function unchangeablePage(
  known: Pages | undefined,
  cursor: string | null,
  filter: RunFilter,
): RunList | undefined {
  const index = known && cursor !== null ? known.pageParams.indexOf(cursor) : -1;
  const page = known?.pages[index];
  const canGrow = GROWING.some((name) => filter[name] !== undefined);
  if (!page || (canGrow && index < REFETCHED_PAGES)) return undefined;
  return page.workers.every((run) => run.completed_at !== null) ? page : undefined;
}

/**
 * Merge a refetched page with the known rows after it, so that the pages below stay valid when a few runs were added on
 * top.
 */
export function mergeWithKnown(known: Pages | undefined, cursor: string | null, fresh: RunList): RunList {
  const index = known ? known.pageParams.indexOf(cursor) : -1;
  const last = fresh.workers.at(-1);
  if (!known || index < 0 || !last || fresh.next === null) return fresh;
  const indexIn = (page: RunList) => page.workers.findIndex((run) => run.id === last.id);
  // If runs have left the list since, the fresh page reaches into the next known page.
  const overlapping = known.pages.slice(index).find((page) => indexIn(page) >= 0);
  if (!overlapping) return fresh;
  return {
    ...fresh,
    workers: [...fresh.workers, ...overlapping.workers.slice(indexIn(overlapping) + 1)],
    next: overlapping.next,
  };
}

/** Sorts after every timestamp. */
const NEVER = "~";

/** Insert a run by its start time, before runs with the same time. Return false if its position is not loaded. */
function insertByTime(pages: RunList[], run: Run): boolean {
  let index = pages.findIndex((page) => (page.workers.at(-1)?.started_at ?? NEVER) <= run.started_at);
  if (index < 0 && pages.at(-1)?.next === null) index = pages.length - 1;
  const page = pages[index];
  if (!page) return false;
  const at = page.workers.findIndex((other) => other.started_at <= run.started_at);
  pages[index] = { ...page, workers: page.workers.toSpliced(at < 0 ? page.workers.length : at, 0, run) };
  return true;
}

/** Whether a run is older than everything loaded: then the total may already include it, or not. */
function isOlderThanLoaded({ pages }: Pages, run: Run): boolean {
  if (!pages.length || pages.at(-1)?.next === null) return false;
  const last = pages.findLast((page) => page.workers.length)?.workers.at(-1);
  return last === undefined || run.started_at < last.started_at;
}

/** Return the pages with an adjusted total; the same object if nothing changed, so that React skips them. */
function withTotal(before: Pages, updated: RunList[], difference: number): Pages {
  const [first, ...rest] = updated;
  if (!first || updated.every((page, index) => page === before.pages[index])) return before;
  return {
    ...before,
    pages: [difference ? { ...first, total: Math.max(0, first.total + difference) } : first, ...rest],
  };
}

const idsByPage = new WeakMap<RunList, ReadonlySet<string>>();

/** Whether a page has one of these runs. The ids of a page are cached: a list may have a thousand pages. */
function hasAny(page: RunList, runs: ReadonlyMap<string, Run>): boolean {
  let ids = idsByPage.get(page);
  if (!ids) idsByPage.set(page, (ids = new Set(page.workers.map((run) => run.id))));
  for (const id of runs.keys()) if (ids.has(id)) return true;
  return false;
}
