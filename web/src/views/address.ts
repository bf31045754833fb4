/** What an address says, and which runs a list is to be of because of it. */
import type { RunFilter, Status } from "@/api";

export const STATUSES: readonly Status[] = ["running", "waiting", "queued", "done", "failed", "cancelled"];
/** As `$agentId`: the runs of all owners. */
export const EVERYBODY = "all";

/** What the address says beside the owner. */
export interface Search {
  /** The chosen run. */
  worker?: string;
  /** The event of it to go to. */
  event?: number;
  /** What to look for in the chosen run: it was chosen among those that a search found. */
  find?: string;
  q?: string;
  status?: Status;
  /** Only runs of the worker of this name. */
  of?: string;
  channel?: string;
  tree?: boolean;
}

export interface Place extends Search {
  /** Whose runs; undefined for all. */
  owner: string | undefined;
}

/** Whatever stands in an address, as what the page goes by; what makes no sense is left out. */
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

/** The router reads `q=123` as a number and `q=true` as a truth; whoever wrote it meant a text. */
function textOf(value: unknown): string {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? String(value) : "";
}

function seqOf(value: unknown): number | undefined {
  const seq = typeof value === "string" || typeof value === "number" ? Number(value) : 0;
  return Number.isSafeInteger(seq) && seq > 0 ? seq : undefined;
}

/** A place with this changed. What is undefined, empty or false is taken out of the address. */
export function changed(before: Search, change: { [K in keyof Search]?: Search[K] | undefined }): Search {
  const kept = Object.entries({ ...before, ...change }).filter(
    ([, value]) => value !== undefined && value !== "" && value !== false,
  );
  return Object.fromEntries(kept);
}

/** What leads to another run, or to none: chosen from a search, it opens at what was found. */
export const toRun = (runId?: string, q?: string) => ({ worker: runId, event: undefined, find: q });

/** A search looks at all runs, also at those below others: then the tree is left aside. */
export const filterOf = (place: Place): RunFilter => ({
  owner: place.owner,
  q: place.q,
  status: place.status,
  worker: place.of,
  channel: place.channel,
  roots: place.tree && !place.q ? true : undefined,
});

/** What takes all filters out. */
export const NO_FILTER = { q: undefined, status: undefined, of: undefined, channel: undefined };

/** Whether the list leaves runs out, other than by whose they are. */
export const isFiltered = (place: Place): boolean => Boolean(place.q || place.status || place.of || place.channel);
