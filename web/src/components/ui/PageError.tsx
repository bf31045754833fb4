import { Button } from "./Button";
import { EmptyState } from "./EmptyState";

/** In place of a part of the page that failed: by a defect, or because the server has a newer page and not this one's files. */
export function PageError({ error }: { error: unknown }) {
  return (
    <EmptyState>
      <div role="alert">
        <p className="font-medium text-text">This part of the page failed.</p>
        <p className="mt-1 max-w-(--prose-w) break-words">{error instanceof Error ? error.message : String(error)}</p>
      </div>
      <p>If the server was updated meanwhile, reload the page.</p>
      <Button onClick={() => location.reload()}>Reload</Button>
    </EmptyState>
  );
}
