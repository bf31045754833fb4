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
      <p className="font-medium text-text-2">No runs match</p>
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
      <p className="font-medium text-text-2">No runs yet</p>
      {owner !== undefined && <p className="text-xs">{owner} has no runs.</p>}
      <Button variant="primary" onClick={() => setIsDialogOpen(true)}>
        Start a run
      </Button>
      <p className="mt-2 text-xs">or record a command:</p>
      <p className="flex max-w-full items-center gap-1">
        <code className="rounded bg-queued-bg px-1.5 py-0.5 text-left font-mono text-xs break-words text-text-2">
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
    <div role="status" className="min-h-0 flex-1 appear-late overflow-hidden">
      <span className="sr-only">Loading runs…</span>
      {Array.from({ length: PLACEHOLDERS }, (_, index) => (
        <div key={index} aria-hidden className="flex h-(--row-h) items-center gap-2.5 pr-3 pl-3.5">
          <span className="size-4 rounded-full bg-n-4" />
          <span className="flex h-full flex-1 flex-col justify-center gap-2 border-b border-border">
            <span className="h-2.5 w-3/4 rounded-1 bg-n-4" />
            <span className="h-2 w-2/5 rounded-1 bg-n-4" />
          </span>
        </div>
      ))}
    </div>
  );
}
