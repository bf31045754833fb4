import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

export const LINK_CLASS = "text-accent underline decoration-current/40 underline-offset-2 hover:decoration-current";

/** Link to another run, with the list unchanged. */
export function RunLink({ id, children }: { id: string; children: ReactNode }) {
  return (
    <Link
      from="/agents/$agentId/workers"
      to="."
      search={({ event, find, ...before }) => ({ ...before, worker: id })}
      className={LINK_CLASS}
    >
      {children}
    </Link>
  );
}

export function BackToRuns() {
  return (
    <Link
      from="/agents/$agentId/workers"
      to="."
      search={({ worker, event, find, ...before }) => before}
      className={LINK_CLASS}
    >
      <span aria-hidden>‹ </span>Back to runs
    </Link>
  );
}

/** Link to all runs of an owner. */
export function OwnerLink({ owner }: { owner: string }) {
  return (
    <Link to="/agents/$agentId/workers" params={{ agentId: owner }} title={`Runs of ${owner}`} className={LINK_CLASS}>
      {owner}
    </Link>
  );
}
