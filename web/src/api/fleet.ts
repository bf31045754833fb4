/** Queries and actions of the fleet: hosts, providers, the queue, and what the caller may do. */
import { queryOptions } from "@tanstack/react-query";
import { client, dataOf } from "./http";
import { providersQuery } from "./requests";

/** How often the state of the fleet is requested while it is shown; events make it sooner. */
const FLEET_POLL_MS = 5_000;
const PROVIDER_POLL_MS = 15_000;

export const hostsQuery = queryOptions({
  queryKey: ["hosts"],
  queryFn: ({ signal }) => dataOf(client.GET("/api/hosts", { signal })),
  refetchInterval: FLEET_POLL_MS,
  staleTime: 0,
});

export const queueQuery = queryOptions({
  queryKey: ["queue"],
  queryFn: ({ signal }) => dataOf(client.GET("/api/queue", { signal })),
  refetchInterval: FLEET_POLL_MS,
  staleTime: 0,
});

/** The providers with their state. The form for a new run requests the same, but not again and again. */
export const fleetProvidersQuery = { ...providersQuery, refetchInterval: PROVIDER_POLL_MS, staleTime: 0 };

const byId = (id: string) => ({ params: { path: { host_id: id } } });

export const drainHost = (id: string) =>
  dataOf(client.POST("/api/hosts/{host_id}/drain", { ...byId(id), body: { seconds: null } }));

export const undrainHost = (id: string) => dataOf(client.POST("/api/hosts/{host_id}/undrain", byId(id)));

const named = (name: string) => ({ params: { path: { name } } });

export const disableProvider = (name: string) =>
  dataOf(client.POST("/api/providers/{name}/disable", { ...named(name), body: { maintenance: false } }));

export const enableProvider = (name: string) => dataOf(client.POST("/api/providers/{name}/enable", named(name)));

export const checkProviders = () => dataOf(client.POST("/api/providers/check"));
