import { useOpenNewRun } from "@/components/dispatch/newRun";
import { Button } from "@/components/ui/Button";
import { CopyButton } from "@/components/ui/CopyButton";
import { EmptyState } from "@/components/ui/EmptyState";
import { Icon } from "@/components/ui/Icon";
import { useChangeAddress, useAddress } from "@/useAddress";
import { useCanAct } from "@/useCanAct";
import { isFiltered, NO_FILTER } from "@/views/addressParameters";

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
  const canAct = useCanAct();
  const openNewRun = useOpenNewRun();
  return (
    <EmptyState>
      <p className="font-medium text-text-2">No runs yet</p>
      {owner !== undefined && <p className="text-xs">{owner} has no runs.</p>}
      {canAct && (
        <Button onClick={openNewRun}>
          <Icon name="plus" className="size-3.5 text-icon" />
          Start a run
        </Button>
      )}
      <p className="mt-2 text-xs">{canAct ? "or record a command:" : "Record a command:"}</p>
      <p className="flex max-w-full items-center gap-1">
        <code className="rounded-1 bg-queued-bg px-1.5 py-0.5 text-left font-mono text-11 break-words text-text-2">
          {EXAMPLE_COMMAND}
        </code>
        <CopyButton text={EXAMPLE_COMMAND} icon="copy" label="Copy" title="Copy the command" />
      </p>
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
