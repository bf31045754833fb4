import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { ALL_OWNERS, type AddressParams } from "@/views/addressParameters";

interface ListLinkProps {
  to: AddressParams;
  children: ReactNode;
  className?: string;
  title?: string;
  tabIndex?: number;
  onFocus?: () => void;
  "data-item"?: string;
  "data-day"?: string;
  "aria-label"?: string;
}

/** A link to the list of runs with filters. */
export function ListLink({ to, ...rest }: ListLinkProps) {
  return <Link to="/agents/$agentId/workers" params={{ agentId: ALL_OWNERS }} search={to} {...rest} />;
}
