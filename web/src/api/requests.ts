/** Queries and actions of the page: runs, timelines, workers, providers and channels. */
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { dataOf, client } from "./http";
import { LIST_PAGE, type Pages, pageSize, mergeWithKnown, unchangeablePage } from "./runPages";
import { startOf } from "@/views/days";
import { isRecord } from "@/views/json";
import type { Status, TimelineRow } from "./types";

/** The order of a list; without it, the newest run is first. */
export type Sort = "oldest" | "cost" | "duration";

/** Filter of a list of runs; a missing field does not filter. */
export interface RunFilter {
  owner?: string | undefined;
  q?: string | undefined;
  status?: Status | undefined;
  worker?: string | undefined;
  channel?: string | undefined;
  model?: string | undefined;
  provider?: string | undefined;
  error?: string | undefined;
  /** Only runs that failed with a message of this group: a message without ids and long numbers. */
  errorGroup?: string | undefined;
  /** Only runs started after, or before, this time. The first may be an age such as `1h`. */
  since?: string | undefined;
  until?: string | undefined;
  /** Only runs that ended after, or before, this time; the first may be an age, too. */
  endedSince?: string | undefined;
  endedUntil?: string | undefined;
  /** Only runs that cost at least, or at most, this with their sub-runs, in US dollars. */
  minCost?: number | undefined;
  maxCost?: number | undefined;
  /** Only runs that took at least, or at most, this long. */
  minDurationMs?: number | undefined;
  maxDurationMs?: number | undefined;
  sort?: Sort | undefined;
  /** Only runs that no other run called. */
  roots?: boolean | undefined;
  parent?: string | undefined;
}

const TIMELINE_PAGE = 1000;
/** How many pages of a timeline one fetch loads. */
const TIMELINE_PAGES = 5;
/** Poll intervals while the live stream is down. */
export const LIST_POLL_MS = 5_000;
export const TIMELINE_POLL_MS = 3_000;

export const runsQuery = (filter: RunFilter) =>
  infiniteQueryOptions({
    queryKey: ["runs", filter],
    // A refetch requests only pages that can have changed: a list may have a thousand pages.
    queryFn: async ({ pageParam, signal, client: queries, queryKey }) => {
      const known = () => queries.getQueryData<Pages>(queryKey);
      const unchanged = unchangeablePage(known(), pageParam, filter);
      if (unchanged) return unchanged;
      const fresh = await fetchRuns(
        filter,
        { limit: pageSize(known(), pageParam), cursor: pageParam ?? undefined },
        signal,
      );
      return mergeWithKnown(known(), pageParam, fresh);
    },
    initialPageParam: null as string | null,
    getNextPageParam: (last) => last.next,
  });

/** Return the last run of a list with `total` runs, whatever part of the list is loaded. */
export const fetchLastRun = async (filter: RunFilter, total: number, signal: AbortSignal) =>
  // The offset may be too small: runs may have been added on top since they were counted.
  (await fetchRuns(filter, { limit: LIST_PAGE, offset: Math.max(0, total - 1) }, signal)).workers.at(-1);

const fetchRuns = (
  filter: RunFilter,
  range: { limit: number; cursor?: string | undefined; offset?: number },
  signal: AbortSignal,
) =>
  dataOf(
    client.GET("/api/agents/workers", {
      params: {
        query: withoutUndefined({
          ...filterParams(filter),
          status: filter.status,
          sort: filter.sort,
          roots: filter.roots || undefined,
          parent: filter.parent,
          ...range,
        }),
      },
      signal,
    }),
  );

/** Return the parameters that lists, counts and statistics have in common. */
export const filterParams = (filter: RunFilter) => ({
  agent_id: filter.owner,
  q: filter.q || undefined,
  worker: filter.worker,
  channel_id: filter.channel,
  model: filter.model,
  provider: filter.provider,
  error: filter.error,
  error_group: filter.errorGroup,
  since: startOf(filter.since, Date.now()),
  until: filter.until,
  ended_since: startOf(filter.endedSince, Date.now()),
  ended_until: filter.endedUntil,
  min_cost: filter.minCost,
  max_cost: filter.maxCost,
  min_duration_ms: filter.minDurationMs,
  max_duration_ms: filter.maxDurationMs,
});

/** The numbers of runs by status, of all that match a filter but for its status. */
export const countsQuery = ({ status: _, sort: __, ...filter }: RunFilter) =>
  queryOptions({
    queryKey: ["counts", filter],
    queryFn: ({ signal }) =>
      dataOf(
        client.GET("/api/agents/workers/counts", {
          params: {
            query: withoutUndefined({ ...filterParams(filter), roots: filter.roots || undefined }),
          },
          signal,
        }),
      ),
  });

/** A run with its result and the calls it waits for. The messages are in its log. */
export const runQuery = (id: string) =>
  queryOptions({
    queryKey: ["run", id],
    queryFn: ({ signal }) =>
      dataOf(
        client.GET("/api/agents/workers/detail", { params: { query: { worker_id: id, transcript: false } }, signal }),
      ),
  });

/** What waits for a person, in all runs: questions, approvals and tools of clients. The longest wait is first. */
export const waitingQuery = queryOptions({
  queryKey: ["waiting"],
  queryFn: ({ signal }) => dataOf(client.GET("/api/waiting", { signal })),
});

export interface Timeline {
  readonly rows: readonly TimelineRow[];
  /** Whether there are later rows; a refetch continues from here. */
  readonly more: boolean;
}

/** The timeline of a run. A refetch continues after the last known row. */
export const timelineQuery = (id: string) =>
  queryOptions({
    queryKey: ["timeline", id],
    queryFn: async ({ signal, client: queries }): Promise<Timeline> => {
      const rows = [...(queries.getQueryData<Timeline>(["timeline", id])?.rows ?? [])];
      for (let pages = 0; pages < TIMELINE_PAGES; pages++) {
        const page = await dataOf(
          client.GET("/api/agents/workers/events", {
            params: { query: { worker_id: id, after: rows.at(-1)?.id ?? 0, limit: TIMELINE_PAGE } },
            signal,
          }),
        );
        rows.push(...page.events);
        if (!page.more) return { rows, more: false };
      }
      return { rows, more: true };
    },
    // Rows are only ever appended, so comparing them is a waste.
    structuralSharing: false,
  });

export const spansQuery = (id: string) =>
  queryOptions({
    queryKey: ["spans", id],
    queryFn: ({ signal }) =>
      dataOf(client.GET("/api/runs/{run_id}/spans", { params: { path: { run_id: id } }, signal })),
  });

export const workersQuery = queryOptions({
  queryKey: ["workers"],
  queryFn: ({ signal }) => dataOf(client.GET("/api/workers", { signal })),
});

/** Agents and model APIs on the server's machine. */
export const providersQuery = queryOptions({
  queryKey: ["providers"],
  queryFn: ({ signal }) => dataOf(client.GET("/api/providers", { signal })),
});

/** How often the state of plugins is requested while it is shown. */
const PLUGIN_POLL_MS = 3_000;

/** Plugins on the server's machine, and their state. */
export const pluginsQuery = queryOptions({
  queryKey: ["plugins"],
  queryFn: ({ signal }) => dataOf(client.GET("/api/plugins", { signal })),
  refetchInterval: PLUGIN_POLL_MS,
});

export const channelsQuery = queryOptions({
  queryKey: ["channels"],
  queryFn: ({ signal }) => dataOf(client.GET("/api/channels", { signal })),
});

export const healthQuery = queryOptions({
  queryKey: ["health"],
  queryFn: ({ signal }) => dataOf(client.GET("/api/health", { signal })),
});

/** Find the events of a run that contain a text. */
export const findInRun = (id: string, q: string, after: number, signal?: AbortSignal) =>
  dataOf(
    client.GET("/api/runs/{run_id}/find", {
      params: { path: { run_id: id }, query: { q, after } },
      ...(signal ? { signal } : {}),
    }),
  );

export interface RunRequest {
  worker: string;
  input: Record<string, unknown>;
  owner?: string;
  idempotency_key?: string;
  cwd?: string;
}

export const dispatch = (body: RunRequest) =>
  dataOf(client.POST("/api/runs", { body: { ...body, channel_id: "page", channel_name: "page" } }));

export const cancelRun = (id: string) =>
  dataOf(client.POST("/api/runs/{run_id}/cancel", { params: { path: { run_id: id } }, body: {} }));

/** Let a failed run no longer wait for a person. */
export const dismissRun = (id: string) =>
  dataOf(client.POST("/api/runs/{run_id}/dismiss", { params: { path: { run_id: id } } }));

export const answerCall = (id: string, callId: string, answer: unknown) =>
  dataOf(
    client.POST("/api/runs/{run_id}/answer", {
      params: { path: { run_id: id } },
      body: { call_id: callId, answer },
    }),
  );

/** Run the worker of a run again, with these inputs changed. */
export const rerunRun = (id: string, input: Record<string, unknown> | null) =>
  dataOf(client.POST("/api/runs/{run_id}/rerun", { params: { path: { run_id: id } }, body: { input } }));

/** Continue the session of an agent with a new prompt. */
export const replyToRun = (id: string, text: string) =>
  dataOf(client.POST("/api/runs/{run_id}/reply", { params: { path: { run_id: id } }, body: { text } }));

/** Start a run with what another run had done up to an event. */
export const forkRun = (id: string, at: number) =>
  dataOf(client.POST("/api/runs/{run_id}/fork", { params: { path: { run_id: id } }, body: { at } }));

/** The input of a run, as its log has it. */
export const inputQuery = (id: string) =>
  queryOptions({
    queryKey: ["input", id],
    queryFn: async ({ signal }): Promise<Record<string, unknown>> => {
      const query = { after: 0, limit: 1 };
      const page = await dataOf(
        client.GET("/api/runs/{run_id}/log", { params: { path: { run_id: id }, query }, signal }),
      );
      const payload: unknown = page.events[0]?.["payload"];
      const input = isRecord(payload) ? payload["input"] : null;
      return isRecord(input) ? input : {};
    },
    staleTime: Infinity,
  });

export const pinRun = (id: string, pinned: boolean) =>
  dataOf(client.POST("/api/runs/{run_id}/pin", { params: { path: { run_id: id } }, body: { pinned } }));

/** Delete a run that has ended, with its sub-runs. */
export const deleteRun = (id: string) =>
  dataOf(client.DELETE("/api/runs/{run_id}", { params: { path: { run_id: id }, query: { force: true } } }));

/** The address of a run's artifact, as a download. */
export const artifactUrl = (id: string, name: string) => `/api/runs/${id}/artifacts/${encodeURIComponent(name)}`;

/** The address of a run as a document, as a download. */
export const exportUrl = (id: string, format: "md" | "html") => `/api/runs/${id}/export?format=${format}`;

export const logUrl = (id: string) => `/api/runs/${id}/log.jsonl`;

/** Leave out undefined values, so that they are not sent. */
export function withoutUndefined<T extends object>(params: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(params).filter(([, value]) => value !== undefined)) as never;
}
