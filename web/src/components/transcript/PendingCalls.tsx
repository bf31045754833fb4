import type { Awaited } from "@/api";
import { isAnswerable } from "@/views/pendingCalls";
import { Question } from "./Question";

const LABELS = { answer: "Waiting for your answer", else: "Waiting" };
const labelOf = ({ kind }: Awaited) => (isAnswerable(kind) ? LABELS.answer : LABELS.else);

/** The calls that the run or its sub-runs wait for, always in sight. */
export function Waiting({ asked, runId }: { asked: readonly Awaited[]; runId: string }) {
  if (asked.length === 0) return null;
  const label = asked.some(({ kind }) => isAnswerable(kind)) ? LABELS.answer : LABELS.else;
  return (
    <div
      role="region"
      aria-label={label}
      tabIndex={0}
      className="max-h-[45dvh] shrink-0 overflow-y-auto border-l-4 border-l-waiting bg-app-side px-3 py-2"
    >
      {asked.map((one) => (
        <div key={`${one.run_id} ${one.call_id}`} className="not-last:mb-3">
          <p className="mb-1 text-[11px] font-semibold text-waiting">
            {labelOf(one)}
            {one.run_id !== runId && (
              <span className="font-normal text-ink-faint"> · sub-run {one.run_id.slice(0, 8)}</span>
            )}
          </p>
          <Question asked={one} />
        </div>
      ))}
    </div>
  );
}
