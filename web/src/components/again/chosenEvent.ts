/** The event that the user has chosen in the transcript of a run: the header offers to fork from it. */
import { useEffect, useSyncExternalStore } from "react";

let chosen: { readonly runId: string; readonly seq: number } | null = null;
const listeners = new Set<() => void>();

function choose(next: typeof chosen): void {
  chosen = next;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Publish the selected event of a transcript while the transcript is shown. */
export function usePublishChosen(runId: string, seq: number | null): void {
  useEffect(() => {
    choose(seq === null ? null : { runId, seq });
    return () => choose(null);
  }, [runId, seq]);
}

export function useChosenEvent(runId: string): number | null {
  return useSyncExternalStore(subscribe, () => (chosen?.runId === runId ? chosen.seq : null));
}
