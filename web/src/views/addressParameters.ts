/** The parameters of the page's address, and the filter of the list that follows from them. */
import type { RunFilter, Sort, Status } from "@/api";
import { ageMs } from "@/views/days";

/** Orders of a list other than the newest run first. */
export const SORTS: readonly Sort[] = ["oldest", "cost", "duration"];
export const STATUSES: readonly Status[] = ["running", "waiting", "queued", "done", "failed", "cancelled"];
/** The `$agentId` that stands for all owners. */
export const ALL_OWNERS = "all";

const TIMES = ["since", "until", "endedSince", "endedUntil"] as const;
/** The times that may be an age instead: `1h`. */
const AGES = ["since", "endedSince"] as const;
const AMOUNTS = ["minCost", "maxCost", "minSeconds", "maxSeconds"] as const;

/** The query parameters of the address. */
export interface AddressParams {
  /** The selected run. */
  worker?: string;
  /** The event of the selected run to go to. */
  event?: number;
  /** The search text in the selected run: set if the run was selected from search results. */
  find?: string;
  q?: string;
  status?: Status;
  /** Only runs of the worker with this name. */
  of?: string;
  channel?: string;
  model?: string;
  provider?: string;
  /** Only runs that failed with this error code. */
  error?: string;
  /** Only runs that failed with a message of this group of failures. */
  errorGroup?: string;
  /** Only runs started from this time on, or at most so long ago (`1h`, `7d`), and before this time. */
  since?: string;
  until?: string;
  /** Only runs that ended from this time on, or at most so long ago, and before this time. */
  endedSince?: string;
  endedUntil?: string;
  /** Only runs that cost at least, or at most, this many US dollars. */
  minCost?: number;
  maxCost?: number;
  /** Only runs that took at least, or at most, this many seconds. */
  minSeconds?: number;
  maxSeconds?: number;
  sort?: Sort;
  /** Whether sub-runs are listed like all other runs, and not below the run that called them. */
  flat?: boolean;
}

export interface Address extends AddressParams {
  /** The owner whose runs are listed; undefined for all. */
  owner: string | undefined;
}

/** Return the valid parameters of an address; others are left out. */
export function paramsOf(raw: Record<string, unknown>): AddressParams {
  const params: AddressParams = {};
  const status = STATUSES.find((candidate) => candidate === raw.status);
  const event = seqOf(raw.event);
  if (textOf(raw.worker)) params.worker = textOf(raw.worker);
  if (event !== undefined) params.event = event;
  if (textOf(raw.find)) params.find = textOf(raw.find);
  if (textOf(raw.q)) params.q = textOf(raw.q);
  if (status) params.status = status;
  if (textOf(raw.of)) params.of = textOf(raw.of);
  if (textOf(raw.channel)) params.channel = textOf(raw.channel);
  if (textOf(raw.model)) params.model = textOf(raw.model);
  if (textOf(raw.provider)) params.provider = textOf(raw.provider);
  if (textOf(raw.error)) params.error = textOf(raw.error);
  if (textOf(raw.errorGroup)) params.errorGroup = textOf(raw.errorGroup);
  for (const name of TIMES) if (timeOf(raw[name])) params[name] = timeOf(raw[name]);
  for (const name of AGES) if (isAge(raw[name])) params[name] = raw[name];
  for (const name of AMOUNTS) {
    const amount = amountOf(raw[name]);
    if (amount !== undefined) params[name] = amount;
  }
  const sort = SORTS.find((candidate) => candidate === raw.sort);
  if (sort) params.sort = sort;
  if (raw.flat === true || raw.flat === "true") params.flat = true;
  return params;
}

/** The router parses `q=123` as a number and `q=true` as a boolean; both are meant as text. */
function textOf(value: unknown): string {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean" ? String(value) : "";
}

const isAge = (value: unknown): value is string => typeof value === "string" && ageMs(value) !== null;

/** The router parses `since=2026` as a number; a time is a text that the server understands. */
function timeOf(value: unknown): string {
  const time = typeof value === "string" ? Date.parse(value) : NaN;
  return Number.isNaN(time) ? "" : new Date(time).toISOString();
}

function amountOf(value: unknown): number | undefined {
  const amount = typeof value === "number" || (typeof value === "string" && value.trim()) ? Number(value) : NaN;
  return amount >= 0 && amount <= Number.MAX_SAFE_INTEGER / 1_000 ? amount : undefined;
}

function seqOf(value: unknown): number | undefined {
  const seq = typeof value === "string" || typeof value === "number" ? Number(value) : 0;
  return Number.isSafeInteger(seq) && seq > 0 ? seq : undefined;
}

/** Return the parameters with a change applied. Undefined, empty and false values are removed. */
export function withChange(
  before: AddressParams,
  change: { [K in keyof AddressParams]?: AddressParams[K] | undefined },
): AddressParams {
  const entries = Object.entries({ ...before, ...change }).filter(
    ([, value]) => value !== undefined && value !== "" && value !== false,
  );
  return Object.fromEntries(entries);
}

/** Return the change that selects a run, or none. Selected from search results, the run opens at its first hit. */
export const selectRun = (runId?: string, q?: string) => ({ worker: runId, event: undefined, find: q });

const toMs = (seconds: number | undefined) => (seconds === undefined ? undefined : Math.round(seconds * 1_000));

/** A search covers all runs, also sub-runs; otherwise the list has the runs that no other run called. */
export const filterOf = (address: Address): RunFilter => ({
  owner: address.owner,
  q: address.q,
  status: address.status,
  worker: address.of,
  channel: address.channel,
  model: address.model,
  provider: address.provider,
  error: address.error,
  errorGroup: address.errorGroup,
  since: address.since,
  until: address.until,
  endedSince: address.endedSince,
  endedUntil: address.endedUntil,
  minCost: address.minCost,
  maxCost: address.maxCost,
  minDurationMs: toMs(address.minSeconds),
  maxDurationMs: toMs(address.maxSeconds),
  sort: address.sort,
  roots: address.flat || address.q ? undefined : true,
});

/** The change that removes all filters. */
export const NO_FILTER = {
  q: undefined,
  status: undefined,
  of: undefined,
  channel: undefined,
  model: undefined,
  provider: undefined,
  error: undefined,
  errorGroup: undefined,
  since: undefined,
  until: undefined,
  endedSince: undefined,
  endedUntil: undefined,
  minCost: undefined,
  maxCost: undefined,
  minSeconds: undefined,
  maxSeconds: undefined,
};

/** Whether the list is filtered by more than its owner. */
export const isFiltered = (address: Address): boolean =>
  Object.keys(NO_FILTER).some((name) => (address[name as keyof typeof NO_FILTER] ?? "") !== "");
