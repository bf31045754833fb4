import { useState } from "react";
import { NewRunDialog } from "@/components/dispatch/NewRunDialog";
import { Button } from "@/components/ui/Button";
import { CopyButton } from "@/components/ui/CopyButton";
import { EmptyState } from "@/components/ui/EmptyState";
import { enterZone } from "@/shortcuts";
import { useChangeAddress, useAddress } from "@/useAddress";
import { isFiltered, NO_FILTER, selectRun } from "@/views/addressParameters";

const EXAMPLE_COMMAND = "shopfloor run --command 'make test'";
const PLACEHOLDERS = 8;

/** An empty list: there are no runs yet, or none match the filters. */
export function EmptyList() {
  const address = useAddress();
  const changeAddress = useChangeAddress();
  if (!isFiltered(address)) return <NoRuns owner={address.owner} />;
  return (
    <EmptyState>
      <p className="font-medium text-ink-dull">No runs match</p>
      {address.q !== undefined && (
        <p className="text-xs">
          The search finds any part of a task, and whole words or "quoted phrases" in everything else.
        </p>
      )}
      <Button onClick={() => changeAddress(NO_FILTER)}>Clear filters</Button>
    </EmptyState>
  );
}

function NoRuns({ owner }: { owner: string | undefined }) {
  const changeAddress = useChangeAddress();
  const [isDialogOpen, setIsDialogOpen] = useState(false);
  return (
    <EmptyState>
      <p className="font-medium text-ink-dull">No runs yet</p>
      {owner !== undefined && <p className="text-xs">{owner} has no runs.</p>}
      <Button variant="primary" onClick={() => setIsDialogOpen(true)}>
        Start a run
      </Button>
      <p className="mt-2 text-xs">or record a command:</p>
      <p className="flex max-w-full items-center gap-1">
        <code className="rounded bg-quiet-back px-1.5 py-0.5 text-left font-mono text-xs break-words text-ink-dull">
          {EXAMPLE_COMMAND}
        </code>
        <CopyButton text={EXAMPLE_COMMAND} label="Copy" title="Copy the command" />
      </p>
      {isDialogOpen && (
        <NewRunDialog
          owner={owner}
          onClose={() => setIsDialogOpen(false)}
          onDispatched={(runId) => {
            setIsDialogOpen(false);
            changeAddress(selectRun(runId));
            enterZone("detail");
          }}
        />
      )}
    </EmptyState>
  );
}

/** Placeholders while the list is loading. */
export function Placeholders() {
  return (
    <div role="status" className="min-h-0 flex-1 overflow-hidden border-t border-line">
      <span className="sr-only">Loading runs…</span>
      {Array.from({ length: PLACEHOLDERS }, (_, address) => (
        <div
          key={address}
          aria-hidden
          className="flex h-[72px] animate-pulse flex-col justify-center gap-2 border-b border-line px-3"
        >
          <span className="h-3 w-11/12 rounded bg-quiet-back" />
          <span className="h-3 w-2/3 rounded bg-quiet-back" />
          <span className="h-3 w-1/2 rounded bg-quiet-back" />
        </div>
      ))}
    </div>
  );
}
