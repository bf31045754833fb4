/** The query of the overview: what runs cost, how they ended and what failed in a range of time. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { startOf } from "@/views/days";
import { rangeStart } from "@/views/overview";
import type { Range } from "@/views/overviewParameters";
import { client, dataOf } from "./http";
import { filterParams, type RunFilter, withoutUndefined } from "./requests";

/** How often the overview is requested while it is shown. */
const STATS_POLL_MS = 5_000;

/** The statistics of the runs that match a filter. The old numbers stay until those of another range are there. */
export const statsQuery = (filter: RunFilter, range: Range) =>
  queryOptions({
    queryKey: ["stats", filter, range],
    queryFn: ({ signal }) =>
      dataOf(
        client.GET("/api/stats", {
          params: {
            query: withoutUndefined({
              ...filterParams(filter),
              status: filter.status,
              since: startOf(filter.since, Date.now()) ?? rangeStart(range, Date.now()),
              tz: Intl.DateTimeFormat().resolvedOptions().timeZone,
            }),
          },
          signal,
        }),
      ),
    refetchInterval: STATS_POLL_MS,
    placeholderData: keepPreviousData,
    staleTime: 0,
  });
