import { useSyncExternalStore } from "react";
import { ago, duration, exact } from "@/views/time";

/** One clock for the page, so that all durations tick together. */
const listeners = new Set<() => void>();
let now = Date.now();
let timer: ReturnType<typeof setInterval> | undefined;

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const one of listeners) one();
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
export function Ago({ at }: { at: string }) {
  const now = useNow();
  return (
    <time dateTime={at} title={exact(at)}>
      {ago(at, now)}
    </time>
  );
}

/** How long a run has taken, ticking while it is active. */
export function Took({ from, to, ms }: { from: string; to: string | null; ms: number | null }) {
  return to !== null ? <>{duration(ms ?? Date.parse(to) - Date.parse(from))}</> : <Ticking from={from} />;
}

function Ticking({ from }: { from: string }) {
  const now = useNow();
  return (
    <span className="tabular-nums">{duration(Math.max(0, Math.floor((now - Date.parse(from)) / 1000) * 1000))}</span>
  );
}
