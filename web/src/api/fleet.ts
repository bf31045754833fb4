/** Queries and actions of the fleet: hosts, providers, the queue, and what the caller may do. */
import { queryOptions } from "@tanstack/react-query";
import { client, dataOf } from "./http";
import { providersQuery } from "./requests";

export type HostStatus = "starting" | "idle" | "busy" | "draining" | "offline";

export interface HostRun {
  run_id: string;
  worker: string;
  task: string | null;
  status: "running" | "waiting";
  started_at: string;
  progress: number | null;
}

export interface Host {
  id: string;
  hostname: string;
  type: "local" | "remote" | "cloud";
  version: string;
  location: { type: "local" | "docker" | "kubernetes" | "ec2" };
  capabilities: string[];
  labels: Record<string, string>;
  resources: { cpu_cores: number; memory_mb: number; disk_gb: number; gpu_count: number | null };
  slots: number;
  slots_used: number;
  status: HostStatus;
  /** False if several heartbeats are missing although the host has not left. */
  responsive: boolean;
  drain_reason: string | null;
  drain_deadline: string | null;
  started_at: string;
  heartbeat_at: string | null;
  heartbeat_seconds: number;
  metrics: { cpu_percent: number; memory_percent: number; disk_percent: number; uptime_seconds: number } | null;
  /** One value per heartbeat, newest last. */
  cpu_history: number[];
  runs: HostRun[];
}

export type QueueReason = "slots" | "labels" | "provider" | "disabled" | "caller" | "definition" | "other";

export interface QueueGroup {
  reason: QueueReason;
  message: string;
  total: number;
  /** The first runs of the group, in the order in which they will start. */
  runs: { run_id: string; worker: string; task: string | null; priority: number; queued_at: string }[];
}

export interface Queue {
  total: number;
  oldest_queued_at: string | null;
  groups: QueueGroup[];
  wait_p50_seconds: number | null;
  wait_p95_seconds: number | null;
  started_last_hour: number;
}

/** How often the state of the fleet is requested while it is shown; events make it sooner. */
const FLEET_POLL_MS = 5_000;
const PROVIDER_POLL_MS = 15_000;

export const hostsQuery = queryOptions({
  queryKey: ["hosts"],
  queryFn: ({ signal }) => request<{ hosts: Host[] }>("GET", "/api/hosts", { signal }),
  refetchInterval: FLEET_POLL_MS,
  staleTime: 0,
});

export const queueQuery = queryOptions({
  queryKey: ["queue"],
  queryFn: ({ signal }) => request<Queue>("GET", "/api/queue", { signal }),
  refetchInterval: FLEET_POLL_MS,
  staleTime: 0,
});

/** The providers with their state. The form for a new run requests the same, but not again and again. */
export const fleetProvidersQuery = { ...providersQuery, refetchInterval: PROVIDER_POLL_MS, staleTime: 0 };

export const drainHost = (id: string) =>
  request("POST", `/api/hosts/${encodeURIComponent(id)}/drain`, { body: { seconds: null } });

export const undrainHost = (id: string) =>
  request("POST", `/api/hosts/${encodeURIComponent(id)}/undrain`, { body: {} });

const named = (name: string) => ({ params: { path: { name } } });

export const disableProvider = (name: string) =>
  dataOf(client.POST("/api/providers/{name}/disable", { ...named(name), body: { maintenance: false } }));

export const enableProvider = (name: string) => dataOf(client.POST("/api/providers/{name}/enable", named(name)));

export const checkProviders = () => dataOf(client.POST("/api/providers/check"));

interface RequestOptions {
  query?: Record<string, string | number | boolean | undefined>;
  body?: object;
  signal?: AbortSignal;
}

/** Send a request to an address that the generated types do not have yet. */
export function request<T = unknown>(
  method: "GET" | "POST",
  path: string,
  { query, body, signal }: RequestOptions,
): Promise<NonNullable<T>> {
  const send = client[method] as (path: string, options: object) => Promise<{ data?: T; response: Response }>;
  return dataOf(send(path, { params: { query }, body, signal }));
}
