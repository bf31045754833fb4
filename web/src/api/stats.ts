/** The query of the overview: what runs cost, how they ended and what failed in a range of time. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { rangeStart } from "@/views/overview";
import type { Range } from "@/views/overviewParameters";
import { request } from "./fleet";
import type { RunFilter } from "./requests";
import type { Status } from "./types";

export interface StatsDay {
  /** The calendar day in the time zone of the request, such as `2026-11-06`. */
  day: string;
  runs: number;
  failed: number;
  cost_usd: number;
  by: Record<"model" | "provider" | "worker", Record<string, number>>;
}

export interface FailureGroup {
  code: string;
  message: string;
  total: number;
  workers: string[];
  last_at: string;
  per_day: number[];
}

export interface RankedRun {
  run_id: string;
  title: string;
  worker: string;
  status: Status;
  cost_usd: number | null;
  duration_ms: number | null;
}

export interface Stats {
  range: { since: string; until: string; tz: string };
  tiles: {
    running: number;
    queued: number;
    oldest_queued_at: string | null;
    waiting: number;
    longest_waiting_since: string | null;
    failed_today: number;
    ended_today: number;
    failed_percent_range: number | null;
    spent_today_usd: number;
    unpriced_today: number;
  };
  days: StatsDay[];
  totals: { runs: number; failed: number; cost_usd: number; tokens: number };
  tools: { name: string; calls: number; failed: number }[];
  failures: FailureGroup[];
  costliest: RankedRun[];
  slowest: RankedRun[];
}

/** How often the overview is requested while it is shown. */
const STATS_POLL_MS = 5_000;

/** The statistics of the runs that match a filter. The old numbers stay until those of another range are there. */
export const statsQuery = (filter: RunFilter, range: Range) =>
  queryOptions({
    queryKey: ["stats", filter, range],
    queryFn: ({ signal }) =>
      request<Stats>("GET", "/api/stats", {
        query: {
          agent_id: filter.owner,
          q: filter.q || undefined,
          status: filter.status,
          worker: filter.worker,
          channel_id: filter.channel,
          model: filter.model,
          provider: filter.provider,
          error: filter.error,
          since: filter.since ?? rangeStart(range, Date.now()),
          until: filter.until,
          tz: Intl.DateTimeFormat().resolvedOptions().timeZone,
        },
        signal,
      }),
    refetchInterval: STATS_POLL_MS,
    placeholderData: keepPreviousData,
    staleTime: 0,
  });
