import { useSyncExternalStore } from "react";
import { useKnownAt } from "@/api";
import { formatAge, formatAgo, formatDateTime, formatDuration, formatIn, formatShort } from "@/views/time";

/** One clock for the page, so that all durations tick together. */
const listeners = new Set<() => void>();
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const notify of listeners) notify();
  }, 1_000);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}

export const useNow = () => useSyncExternalStore(subscribe, () => now);

/** How long ago something was, with the exact time as a tooltip. */
export function TimeAgo({ at }: { at: string }) {
  const now = useNow();
  return (
    <time dateTime={at} title={formatDateTime(at)}>
      {formatAgo(at, now)}
    </time>
  );
}

/** When something happens, with the exact time as a tooltip. */
export function TimeIn({ at }: { at: string }) {
  const now = useNow();
  return (
    <time dateTime={at} title={formatDateTime(at)}>
      {formatIn(at, now)}
    </time>
  );
}

/** How old something is, in short. */
export function Age({ at }: { at: string }) {
  const now = useNow();
  return (
    <time dateTime={at} title={formatDateTime(at)}>
      {formatAge(at, now)}
    </time>
  );
}

/** How long a run has taken, ticking while it is active. */
export function Duration({ from, to, ms }: { from: string; to: string | null; ms: number | null }) {
  return to !== null ? <>{formatDuration(ms ?? Date.parse(to) - Date.parse(from))}</> : <TickingDuration from={from} />;
}

function TickingDuration({ from }: { from: string }) {
  // While the connection is lost, it is not known whether the run goes on.
  const at = useKnownAt(useNow());
  return (
    <span className="tabular-nums">{formatShort(Math.max(0, Math.floor((at - Date.parse(from)) / 1000) * 1000))}</span>
  );
}
