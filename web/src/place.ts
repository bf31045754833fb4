/** The address as the parts of the page read and change it. */
import { useNavigate, useRouter } from "@tanstack/react-router";
import { useCallback } from "react";
import { workersRoute } from "@/router";
import { changed, EVERYBODY, filterOf, type Place, type Search, searchOf, toRun } from "@/views/address";

export { filterOf, type Place };

export function usePlace(): Place {
  const { agentId } = workersRoute.useParams();
  // The router leaves in what `searchOf` has left out.
  const search = searchOf({ ...workersRoute.useSearch() });
  return { ...search, owner: agentId === EVERYBODY ? undefined : agentId };
}

/** Goes to another place. What is undefined is taken out of the address; `replace` leaves no step to go back to. */
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

/** Makes the address of a run in the list as it is now; the same function until the list is another. */
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

/** The link to a run, or to an event of it, for whoever it is given to. */
export function linkTo(runId: string, event?: number): string {
  const query = new URLSearchParams({ worker: runId, ...(event ? { event: String(event) } : {}) });
  return `${location.origin}/agents/${EVERYBODY}/workers?${query}`;
}
