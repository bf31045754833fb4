/** The routes of the page: everything it shows has an address. */
import { createRootRoute, createRoute, createRouter, redirect } from "@tanstack/react-router";
import { NotFound } from "@/components/ui/NotFound";
import { Workers } from "@/components/RunsPage";
import { EVERYBODY, type Search, STATUSES, searchOf } from "@/views/address";

export { EVERYBODY, STATUSES, type Search, searchOf };

const root = createRootRoute({ notFoundComponent: NotFound });

const front = createRoute({
  getParentRoute: () => root,
  path: "/",
  beforeLoad: () =>
    redirect({ to: "/agents/$agentId/workers", params: { agentId: EVERYBODY }, replace: true, throw: true }),
});

export const workersRoute = createRoute({
  getParentRoute: () => root,
  path: "/agents/$agentId/workers",
  validateSearch: searchOf,
  component: Workers,
});

export const router = createRouter({ routeTree: root.addChildren([front, workersRoute]) });

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
