import type { LogEvent } from "@/api";
import { Button } from "@/components/ui/Button";
import { bytes } from "@/views/amounts";
import type { Whole } from "./transcriptContext";

/** Say that an event is truncated, and offer to load the rest. */
export function Cut({ whole }: { whole: Whole<LogEvent> }) {
  if (whole.cut === null) return null;
  return (
    <p className="flex flex-wrap items-center gap-2 py-0.5 text-xs text-ink-dull">
      {whole.problem ? (
        <span className="text-failed">{whole.problem.message}</span>
      ) : (
        <span>Cut: {bytes(whole.cut)} in all</span>
      )}
      <Button disabled={whole.loading} onClick={whole.load}>
        {whole.loading ? "Loading…" : whole.problem ? "Try again" : "Load all"}
      </Button>
    </p>
  );
}
