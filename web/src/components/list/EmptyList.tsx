import { useState } from "react";
import { Dispatch } from "@/components/dispatch/NewRunDialog";
import { Button } from "@/components/ui/Button";
import { Copy } from "@/components/ui/CopyButton";
import { Quiet } from "@/components/ui/EmptyState";
import { enterZone } from "@/shortcuts";
import { useGo, usePlace } from "@/address";
import { isFiltered, NO_FILTER, toRun } from "@/views/address";

const COMMAND = "shopfloor run --command 'make test'";
const PLACEHOLDERS = 8;

/** An empty list: there are no runs yet, or none match the filters. */
export function Nothing() {
  const place = usePlace();
  const go = useGo();
  if (!isFiltered(place)) return <NoRuns owner={place.owner} />;
  return (
    <Quiet>
      <p className="font-medium text-ink-dull">No run matches</p>
      {place.q !== undefined && (
        <p className="text-xs">
          The search finds any part of a task, and whole words or "quoted phrases" in everything else.
        </p>
      )}
      <Button onClick={() => go(NO_FILTER)}>Clear the filters</Button>
    </Quiet>
  );
}

function NoRuns({ owner }: { owner: string | undefined }) {
  const go = useGo();
  const [isAsking, setAsking] = useState(false);
  return (
    <Quiet>
      <p className="font-medium text-ink-dull">No runs yet</p>
      {owner !== undefined && <p className="text-xs">{owner} has none.</p>}
      <Button look="primary" onClick={() => setAsking(true)}>
        Make one
      </Button>
      <p className="mt-2 text-xs">or record a command:</p>
      <p className="flex max-w-full items-center gap-1">
        <code className="rounded bg-quiet-back px-1.5 py-0.5 text-left font-mono text-xs break-words text-ink-dull">
          {COMMAND}
        </code>
        <Copy text={COMMAND} label="Copy" title="Copy the command" />
      </p>
      {isAsking && (
        <Dispatch
          owner={owner}
          onClose={() => setAsking(false)}
          onDispatched={(runId) => {
            setAsking(false);
            go(toRun(runId));
            enterZone("detail");
          }}
        />
      )}
    </Quiet>
  );
}

/** Placeholders while the list is loading. */
export function Placeholders() {
  return (
    <div role="status" className="min-h-0 flex-1 overflow-hidden border-t border-line">
      <span className="sr-only">Loading runs…</span>
      {Array.from({ length: PLACEHOLDERS }, (_, place) => (
        <div
          key={place}
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
