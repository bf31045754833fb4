/** The routes of the page: everything it shows has an address. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { PageFrame } from "@/components/PageFrame";
import { RunsPage } from "@/components/RunsPage";
import { NotFound } from "@/components/ui/NotFound";
import { PageError } from "@/components/ui/PageError";
import { ALL_OWNERS, type AddressParams, STATUSES, paramsOf } from "@/views/addressParameters";
import { overviewParamsOf } from "@/views/overviewParameters";

export { ALL_OWNERS, STATUSES, type AddressParams, paramsOf };

const rootRoute = createRootRoute({ component: PageFrame, notFoundComponent: NotFound });

/** The list of runs stays where it is while the right column changes between the overview and a run. */
const runsRoute = createRoute({ getParentRoute: () => rootRoute, id: "runs", component: RunsPage });

const overviewRoute = createRoute({
  getParentRoute: () => runsRoute,
  path: "/",
  validateSearch: (raw: Record<string, unknown>) => ({ ...paramsOf(raw), ...overviewParamsOf(raw) }),
});

export const workersRoute = createRoute({
  getParentRoute: () => runsRoute,
  path: "/agents/$agentId/workers",
  validateSearch: paramsOf,
});

const fleetRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/fleet",
  component: lazyRouteComponent(() => import("@/components/fleet/FleetPage"), "FleetPage"),
});

export const router = createRouter({
  defaultErrorComponent: PageError,
  routeTree: rootRoute.addChildren([runsRoute.addChildren([overviewRoute, workersRoute]), fleetRoute]),
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
