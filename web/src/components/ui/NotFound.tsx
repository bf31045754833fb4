import { Link } from "@tanstack/react-router";
import { Quiet } from "./EmptyState";

export function NotFound() {
  return (
    <Quiet>
      <p>There is no such page.</p>
      <Link to="/" className="text-accent underline">
        All runs
      </Link>
    </Quiet>
  );
}
