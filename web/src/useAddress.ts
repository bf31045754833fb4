/** Hooks that read and change the address of the page. */
import { useNavigate, useParams, useRouter, useSearch } from "@tanstack/react-router";
import { useCallback } from "react";
import {
  withChange,
  ALL_OWNERS,
  filterOf,
  type Address,
  type AddressParams,
  paramsOf,
  selectRun,
} from "@/views/addressParameters";
import {
  DEFAULT_RANGE,
  type OverviewParams,
  overviewParamsOf,
  type Range,
  type Stack,
  STACKS,
} from "@/views/overviewParameters";

export { filterOf, type Address };

const LIST_PATH = "/agents/$agentId/workers";

/** Return what the address says. The overview has the same filters as a list, and the fleet has none. */
export function useAddress(): Address {
  const { agentId = ALL_OWNERS } = useParams({ strict: false });
  // The router keeps parameters that `paramsOf` leaves out.
  const params = paramsOf({ ...useSearch({ strict: false }) });
  return { ...params, owner: agentId === ALL_OWNERS ? undefined : agentId };
}

/** Whether the address is that of the overview, and not of a list. */
export const useIsOverview = () => useParams({ strict: false }).agentId === undefined;

/**
 * Return a function that changes the address. Undefined values are removed; `replace` adds no history entry. The address
 * of a run is in a list, so selecting one leaves the overview; other changes stay on the page.
 */
export function useChangeAddress(): (
  change: Partial<{ [K in keyof AddressParams]: AddressParams[K] | undefined }>,
  replace?: boolean,
) => void {
  const navigate = useNavigate();
  const router = useRouter();
  const { agentId } = useParams({ strict: false });
  return useCallback(
    (change, replace = false) => {
      const searchOf = (before: object) => withChange(paramsOf({ ...before }), change);
      void (agentId !== undefined || change.worker !== undefined
        ? navigate({
            to: LIST_PATH,
            params: { agentId: agentId ?? ALL_OWNERS },
            search: searchOf,
            // Another page has an entry of its own, so that Back returns to the overview.
            // The router's own location is that of the last page until the next is rendered.
            replace: replace && router.history.location.pathname !== "/",
            resetScroll: false,
          })
        : navigate({
            to: "/",
            search: (before) => ({ ...overviewParamsOf({ ...before }), ...searchOf(before) }),
            replace,
            resetScroll: false,
          }));
    },
    [navigate, router, agentId],
  );
}

/** Return the range and the stacking of the overview, and a function that changes them. */
export function useOverviewAddress(): [{ range: Range; by: Stack }, (change: OverviewParams) => void] {
  const { range = DEFAULT_RANGE, by = STACKS[0] } = overviewParamsOf({ ...useSearch({ strict: false }) });
  const navigate = useNavigate();
  const change = useCallback(
    (params: OverviewParams) =>
      void navigate({
        to: "/",
        search: (before) => ({
          ...paramsOf({ ...before }),
          ...overviewParamsOf({ ...overviewParamsOf({ ...before }), ...params }),
        }),
        replace: true,
        resetScroll: false,
      }),
    [navigate],
  );
  return [{ range, by }, change];
}

/** Return a function that builds the address of a run in the current list; the same function until the list changes. */
export function useRunHref(): (runId: string) => string {
  const router = useRouter();
  const { agentId = ALL_OWNERS } = useParams({ strict: false });
  const { worker, event, find, ...list } = paramsOf({ ...useSearch({ strict: false }) });
  const listJson = JSON.stringify(list);
  return useCallback(
    (runId) => {
      const list = paramsOf(JSON.parse(listJson) as Record<string, unknown>);
      return router.buildLocation({
        to: LIST_PATH,
        params: { agentId },
        search: withChange(list, selectRun(runId, list.q)),
      }).href;
    },
    [router, agentId, listJson],
  );
}

/** Return a link to a run, or to one of its events, that works for everyone with access. */
export function runUrl(runId: string, event?: number): string {
  const query = new URLSearchParams({ worker: runId, ...(event ? { event: String(event) } : {}) });
  return `${location.origin}/agents/${ALL_OWNERS}/workers?${query}`;
}
