/** The parameters of the page's address, and the filter of the list that follows from them. */
import type { RunFilter, Status } from "@/api";

export const STATUSES: readonly Status[] = ["running", "waiting", "queued", "done", "failed", "cancelled"];
/** The `$agentId` that stands for all owners. */
export const EVERYBODY = "all";

/** The query parameters of the address. */
export interface Search {
  /** The selected run. */
  worker?: string;
  /** The event of the selected run to go to. */
  event?: number;
  /** The search text in the selected run: set where the run was selected from search results. */
  find?: string;
  q?: string;
  status?: Status;
  /** Only runs of the worker with this name. */
  of?: string;
  channel?: string;
  tree?: boolean;
}

export interface Place extends Search {
  /** The owner whose runs are listed; undefined for all. */
  owner: string | undefined;
}

/** Return the valid parameters of an address; others are left out. */
export function searchOf(said: Record<string, unknown>): Search {
  const search: Search = {};
  const status = STATUSES.find((one) => one === said.status);
  const event = seqOf(said.event);
  if (textOf(said.worker)) search.worker = textOf(said.worker);
  if (event !== undefined) search.event = event;
  if (textOf(said.find)) search.find = textOf(said.find);
  if (textOf(said.q)) search.q = textOf(said.q);
  if (status) search.status = status;
  if (textOf(said.of)) search.of = textOf(said.of);
  if (textOf(said.channel)) search.channel = textOf(said.channel);
  if (said.tree === true || said.tree === "true") search.tree = true;
  return search;
}

/** The router parses `q=123` as a number and `q=true` as a boolean; both are meant as text. */
function textOf(value: unknown): string {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? String(value) : "";
}

function seqOf(value: unknown): number | undefined {
  const seq = typeof value === "string" || typeof value === "number" ? Number(value) : 0;
  return Number.isSafeInteger(seq) && seq > 0 ? seq : undefined;
}

/** Return the parameters with a change applied. Undefined, empty and false values are removed. */
export function changed(before: Search, change: { [K in keyof Search]?: Search[K] | undefined }): Search {
  const kept = Object.entries({ ...before, ...change }).filter(
    ([, value]) => value !== undefined && value !== "" && value !== false,
  );
  return Object.fromEntries(kept);
}

/** Return the change that selects a run, or none. Selected from search results, the run opens at its first hit. */
export const toRun = (runId?: string, q?: string) => ({ worker: runId, event: undefined, find: q });

/** A search covers all runs, also sub-runs, so it ignores the tree setting. */
export const filterOf = (place: Place): RunFilter => ({
  owner: place.owner,
  q: place.q,
  status: place.status,
  worker: place.of,
  channel: place.channel,
  roots: place.tree && !place.q ? true : undefined,
});

/** The change that removes all filters. */
export const NO_FILTER = { q: undefined, status: undefined, of: undefined, channel: undefined };

/** Whether the list is filtered by more than its owner. */
export const isFiltered = (place: Place): boolean => Boolean(place.q || place.status || place.of || place.channel);
