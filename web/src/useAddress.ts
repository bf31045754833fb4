/** Hooks that read and change the address of the page. */
import { useNavigate, useRouter } from "@tanstack/react-router";
import { useCallback } from "react";
import { workersRoute } from "@/router";
import {
  withChange,
  ALL_OWNERS,
  filterOf,
  type Address,
  type AddressParams,
  paramsOf,
  selectRun,
} from "@/views/addressParameters";

export { filterOf, type Address };

export function useAddress(): Address {
  const { agentId } = workersRoute.useParams();
  // The router keeps parameters that `paramsOf` leaves out.
  const params = paramsOf({ ...workersRoute.useSearch() });
  return { ...params, owner: agentId === ALL_OWNERS ? undefined : agentId };
}

/** Return a function that changes the address. Undefined values are removed; `replace` adds no history entry. */
export function useChangeAddress(): (
  change: Partial<{ [K in keyof AddressParams]: AddressParams[K] | undefined }>,
  replace?: boolean,
) => void {
  const navigate = useNavigate({ from: workersRoute.fullPath });
  return useCallback(
    (change, replace = false) =>
      void navigate({
        search: (before) => withChange(paramsOf({ ...before }), change),
        replace,
        resetScroll: false,
      }),
    [navigate],
  );
}

/** Return a function that builds the address of a run in the current list; the same function until the list changes. */
export function useRunHref(): (runId: string) => string {
  const router = useRouter();
  const { agentId } = workersRoute.useParams();
  const { worker, event, find, ...list } = workersRoute.useSearch();
  const listJson = JSON.stringify(list);
  return useCallback(
    (runId) => {
      const list = paramsOf(JSON.parse(listJson) as Record<string, unknown>);
      return router.buildLocation({
        to: workersRoute.to,
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
