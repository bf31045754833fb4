import { Link } from "@tanstack/react-router";
import clsx from "clsx";
import type { ReactNode } from "react";
import { Icon } from "@/components/ui/Icon";

export const LINK_CLASS =
  "text-accent-text underline decoration-current/40 underline-offset-2 hover:decoration-current";

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

/** Link from a run to the list: on a narrow screen an arrow, where its text has no room. */
export function BackToRuns({ hasText = false }: { hasText?: boolean }) {
  return (
    <Link
      from="/agents/$agentId/workers"
      to="."
      search={({ worker, event, find, ...before }) => before}
      aria-label="Back to runs"
      className="flex items-center gap-1 text-accent-text"
    >
      <Icon name="back" />
      <span className={clsx(!hasText && "max-md:sr-only")}>Back to runs</span>
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
