import type { PendingCall } from "@/api";
import { useCanAct } from "@/useCanAct";
import { isAnswerable } from "@/views/pendingCalls";
import { Question } from "./Question";

/** Say who can end a wait: a viewer cannot answer. */
const labelOf = (isAnswer: boolean, canAct: boolean) =>
  isAnswer ? (canAct ? "Waiting for your answer" : "Waiting for an answer") : "Waiting";

/** The calls that the run or its sub-runs wait for, always in sight. */
export function PendingCalls({ calls, runId }: { calls: readonly PendingCall[]; runId: string }) {
  const canAct = useCanAct();
  if (calls.length === 0) return null;
  const label = labelOf(
    calls.some(({ kind }) => isAnswerable(kind)),
    canAct,
  );
  return (
    <div
      role="region"
      aria-label={label}
      tabIndex={0}
      className="thin-scroll max-h-[45dvh] shrink-0 overflow-y-auto border-t border-l-2 border-t-border border-l-waiting bg-waiting-bg px-5 py-2.5"
    >
      {calls.map((call, n) => (
        <div key={`${call.run_id} ${call.call_id}`} className="not-last:mb-3">
          <p className="mb-1 text-11 font-semibold text-waiting-text">
            {labelOf(isAnswerable(call.kind), canAct)}
            {call.run_id !== runId && (
              <span className="font-normal text-text-2"> · sub-run {call.run_id.slice(0, 8)}</span>
            )}
          </p>
          <Question call={call} keyZone={n === 0 ? "detail" : undefined} />
        </div>
      ))}
    </div>
  );
}
