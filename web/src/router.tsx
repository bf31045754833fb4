/** The routes of the page: everything it shows has an address. */
import { createRootRoute, createRoute, createRouter, redirect } from "@tanstack/react-router";
import { NotFound } from "@/components/ui/NotFound";
import { PageFrame } from "@/components/PageFrame";
import { RunsPage } from "@/components/RunsPage";
import { ALL_OWNERS, type AddressParams, STATUSES, paramsOf } from "@/views/addressParameters";

export { ALL_OWNERS, STATUSES, type AddressParams, paramsOf };

const rootRoute = createRootRoute({ component: PageFrame, notFoundComponent: NotFound });

const homeRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  beforeLoad: () =>
    redirect({ to: "/agents/$agentId/workers", params: { agentId: ALL_OWNERS }, replace: true, throw: true }),
});

export const workersRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/agents/$agentId/workers",
  validateSearch: paramsOf,
  component: RunsPage,
});

export const router = createRouter({ routeTree: rootRoute.addChildren([homeRoute, workersRoute]) });

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
