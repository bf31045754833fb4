/**
 * Lists of runs, page by page, and what becomes of them when rows change or are asked for again. Newest first; each page
 * goes on from where the one before ended, so that new runs never shift what was loaded.
 */
import type { InfiniteData } from "@tanstack/react-query";
import type { RunFilter } from "./runs";
import type { Run, RunList } from "./types";

export type Pages = InfiniteData<RunList, string | null>;

export const LIST_PAGE = 100;
/** The largest page that the server gives. */
const LARGE_PAGE = 500;
const SMALL_PAGES = 5;

/** How many runs a page is asked for: who goes far down a list gets there with few large pages. */
export function pageSize(known: Pages | undefined, cursor: string | null): number {
  const index = known ? known.pageParams.indexOf(cursor) : 0;
  return (index < 0 ? (known?.pages.length ?? 0) : index) < SMALL_PAGES ? LIST_PAGE : LARGE_PAGE;
}

export interface Patched {
  readonly pages: Pages;
  /** Whether only the server can tell how many there are now, or which ones a search finds. */
  readonly unsure: boolean;
}

/** Rows that have changed: in place where the list has them, where they belong where it should, out where they fit no more. */
export function patched(pages: Pages, filter: RunFilter, newest: ReadonlyMap<string, Run>): Patched {
  const known = new Set<string>();
  const moved: Run[] = [];
  let left = 0;
  const now = pages.pages.map((page) => {
    if (!hasAny(page, newest)) return page;
    const workers = page.workers.flatMap((run) => {
      const changed = newest.get(run.id);
      if (!changed) return [run];
      if (known.has(run.id)) return [];
      known.add(run.id);
      if (!fits(changed, filter)) {
        left += 1;
        return [];
      }
      const stays = filter.q !== undefined || changed.started_at === run.started_at;
      if (!stays) moved.push(changed);
      return stays ? [{ ...changed, snippet: run.snippet }] : [];
    });
    return { ...page, workers };
  });
  const others = [...newest.values()].filter((run) => !known.has(run.id));
  if (filter.q !== undefined) return { pages: counted(pages, now, -left), unsure: others.length > 0 };
  for (const run of moved) place(now, run);
  const added = others.filter((run) => fits(run, filter) && place(now, run)).length;
  return { pages: counted(pages, now, added - left), unsure: others.some((run) => isBeyond(pages, run)) };
}

/** The pages without runs that are gone. */
export function without(pages: Pages, gone: ReadonlySet<string>): Pages {
  let left = 0;
  const now = pages.pages.map((page) => {
    const workers = page.workers.filter((run) => !gone.has(run.id));
    left += page.workers.length - workers.length;
    return workers.length === page.workers.length ? page : { ...page, workers };
  });
  return counted(pages, now, -left);
}

/** Whether a run belongs to a list, as far as its row tells: what a search finds only the server knows. */
export function fits(run: Run, filter: RunFilter): boolean {
  return (
    (filter.owner === undefined || run.agent_id === filter.owner) &&
    (filter.status === undefined || run.status === filter.status) &&
    (filter.worker === undefined || run.name === filter.worker) &&
    (filter.channel === undefined || run.channel_id === filter.channel) &&
    (filter.parent === undefined || run.parent_run_id === filter.parent) &&
    (!filter.roots || run.parent_run_id === null)
  );
}

/** So far down, what a list has is not looked at again for runs that came to fit meanwhile. */
const FAR_PAGES = 5;

/** A page that is known and cannot have changed: it need not be asked for again. */
export function settledPage(known: Pages | undefined, cursor: string | null, filter: RunFilter): RunList | undefined {
  const index = known && cursor !== null ? known.pageParams.indexOf(cursor) : -1;
  const page = known?.pages[index];
  const canGrow = filter.status !== undefined || filter.q !== undefined;
  if (!page || (canGrow && index < FAR_PAGES)) return undefined;
  return page.workers.every((run) => run.completed_at !== null) ? page : undefined;
}

/**
 * A page that was asked for again, with what is known after it: so the pages behind it stay where they are, and need not
 * be asked for because a few runs came on top.
 */
export function rejoined(known: Pages | undefined, cursor: string | null, fresh: RunList): RunList {
  const index = known ? known.pageParams.indexOf(cursor) : -1;
  const last = fresh.workers.at(-1);
  if (!known || index < 0 || !last || fresh.next === null) return fresh;
  const placeIn = (page: RunList) => page.workers.findIndex((run) => run.id === last.id);
  // Where runs have left the list since, the fresh page reaches into the next one.
  const joint = known.pages.slice(index).find((page) => placeIn(page) >= 0);
  if (!joint) return fresh;
  return { ...fresh, workers: [...fresh.workers, ...joint.workers.slice(placeIn(joint) + 1)], next: joint.next };
}

/** After all times. */
const NEVER = "~";

/** Puts a run where its time says; of the same time, what came last is first. False where that is beyond the loaded. */
function place(pages: RunList[], run: Run): boolean {
  let index = pages.findIndex((page) => (page.workers.at(-1)?.started_at ?? NEVER) <= run.started_at);
  if (index < 0 && pages.at(-1)?.next === null) index = pages.length - 1;
  const page = pages[index];
  if (!page) return false;
  const at = page.workers.findIndex((one) => one.started_at <= run.started_at);
  pages[index] = { ...page, workers: page.workers.toSpliced(at < 0 ? page.workers.length : at, 0, run) };
  return true;
}

/** Whether a run is further down than what is loaded: then it may be counted already, or not. */
function isBeyond({ pages }: Pages, run: Run): boolean {
  if (!pages.length || pages.at(-1)?.next === null) return false;
  const last = pages.findLast((page) => page.workers.length)?.workers.at(-1);
  return last === undefined || run.started_at < last.started_at;
}

/** The same object where nothing has changed: pages that are as they were are not looked at again. */
function counted(before: Pages, now: RunList[], difference: number): Pages {
  const [first, ...rest] = now;
  if (!first || now.every((page, index) => page === before.pages[index])) return before;
  return {
    ...before,
    pages: [difference ? { ...first, total: Math.max(0, first.total + difference) } : first, ...rest],
  };
}

const known = new WeakMap<RunList, ReadonlySet<string>>();

/** Whether a page has one of them. What a page has is kept: of a thousand pages, few are looked into. */
function hasAny(page: RunList, runs: ReadonlyMap<string, Run>): boolean {
  let ids = known.get(page);
  if (!ids) known.set(page, (ids = new Set(page.workers.map((run) => run.id))));
  for (const id of runs.keys()) if (ids.has(id)) return true;
  return false;
}
