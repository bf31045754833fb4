import type { LogEvent } from "@/api";
import { Button } from "@/components/ui/Button";
import { formatBytes } from "@/views/amounts";
import type { FullEvent } from "./transcriptContext";

/** Say that an event is truncated, and offer to load the rest. */
export function TruncationNotice({ full }: { full: FullEvent<LogEvent> }) {
  if (full.truncatedBytes === null) return null;
  return (
    <p className="flex flex-wrap items-center gap-2 py-0.5 text-xs text-text-2">
      {full.problem ? (
        <span className="text-failed-text">{full.problem.message}</span>
      ) : (
        <span>Truncated: {formatBytes(full.truncatedBytes)} in total</span>
      )}
      <Button disabled={full.isLoading} onClick={full.load}>
        {full.isLoading ? "Loading…" : full.problem ? "Try again" : "Load all"}
      </Button>
    </p>
  );
}
