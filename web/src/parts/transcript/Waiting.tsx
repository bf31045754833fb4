import type { Awaited } from "@/api";
import { Question } from "./Question";

/** What the run, or one below it, waits for: always in sight, so that nobody has to look for it. */
export function Waiting({ asked, runId }: { asked: readonly Awaited[]; runId: string }) {
  if (asked.length === 0) return null;
  return (
    <div role="region" aria-label="Waiting for your answer" tabIndex={0} className="max-h-[45dvh] shrink-0 overflow-y-auto border-l-4 border-l-waiting bg-app-side px-3 py-2">
      {asked.map((one) => (
        <div key={`${one.run_id} ${one.call_id}`} className="not-last:mb-3">
          <p className="mb-1 text-[11px] font-semibold text-waiting">
            Waiting for your answer
            {one.run_id !== runId && <span className="font-normal text-ink-faint"> · sub-run {one.run_id.slice(0, 8)}</span>}
          </p>
          <Question asked={one} />
        </div>
      ))}
    </div>
  );
}
