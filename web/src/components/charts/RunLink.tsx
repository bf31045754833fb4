import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { ALL_OWNERS } from "@/views/addressParameters";

interface RunLinkProps {
  runId: string;
  children?: ReactNode;
  className?: string;
  title?: string;
  tabIndex?: number;
  onFocus?: () => void;
  "data-item"?: string;
}

/** A link to a run, in the list of all runs. */
export function RunLink({ runId, ...rest }: RunLinkProps) {
  return <Link to="/agents/$agentId/workers" params={{ agentId: ALL_OWNERS }} search={{ worker: runId }} {...rest} />;
}
