import { Link } from "@tanstack/react-router";
import { EmptyState } from "./EmptyState";

export function NotFound() {
  return (
    <EmptyState>
      <p>Page not found.</p>
      <Link to="/" className="text-accent-text underline">
        All runs
      </Link>
    </EmptyState>
  );
}
