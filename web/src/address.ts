/** Hooks that read and change the address of the page. */
import { useNavigate, useRouter } from "@tanstack/react-router";
import { useCallback } from "react";
import { workersRoute } from "@/router";
import { changed, EVERYBODY, filterOf, type Place, type Search, searchOf, toRun } from "@/views/address";

export { filterOf, type Place };

export function usePlace(): Place {
  const { agentId } = workersRoute.useParams();
  // The router keeps parameters that `searchOf` leaves out.
  const search = searchOf({ ...workersRoute.useSearch() });
  return { ...search, owner: agentId === EVERYBODY ? undefined : agentId };
}

/** Return a function that changes the address. Undefined values are removed; `replace` adds no history entry. */
export function useGo(): (change: Partial<{ [K in keyof Search]: Search[K] | undefined }>, replace?: boolean) => void {
  const navigate = useNavigate({ from: workersRoute.fullPath });
  return useCallback(
    (change, replace = false) =>
      void navigate({
        search: (before) => changed(searchOf({ ...before }), change),
        replace,
        resetScroll: false,
      }),
    [navigate],
  );
}

/** Return a function that builds the address of a run in the current list; the same function until the list changes. */
export function useHref(): (runId: string) => string {
  const router = useRouter();
  const { agentId } = workersRoute.useParams();
  const { worker, event, find, ...list } = workersRoute.useSearch();
  const said = JSON.stringify(list);
  return useCallback(
    (runId) => {
      const list = searchOf(JSON.parse(said) as Record<string, unknown>);
      return router.buildLocation({
        to: workersRoute.to,
        params: { agentId },
        search: changed(list, toRun(runId, list.q)),
      }).href;
    },
    [router, agentId, said],
  );
}

/** Return a link to a run, or to one of its events, that works for everyone with access. */
export function linkTo(runId: string, event?: number): string {
  const query = new URLSearchParams({ worker: runId, ...(event ? { event: String(event) } : {}) });
  return `${location.origin}/agents/${EVERYBODY}/workers?${query}`;
}
