/** The context that all rows of a transcript share: their log, and what can be done with them. */
import { createContext, useContext, useEffect, useState } from "react";
import { useRowState } from "./rowState";
import { type LogEvent, type Problem, problemOf, type RunLog } from "@/api";

export interface TranscriptContextValue {
  readonly log: RunLog;
  /** Whether the run may add events. */
  readonly isRunActive: boolean;
  /** Why the run was cancelled; null if it was not. */
  readonly cancelReason: string | null;
  /** Ids of the calls that the strip above the transcript asks about. */
  readonly pendingCallIds: ReadonlySet<string>;
  readonly onToggle: (seq: number, open: boolean) => void;
  /** Put an event into the address; undefined in a nested transcript, whose events have no address. */
  readonly onSelect: ((seq: number) => void) | undefined;
  /** Fork the run from an event; undefined in a nested transcript, and if the user may not. */
  readonly onFork: ((seq: number) => void) | undefined;
}

export const TranscriptContext = createContext<TranscriptContextValue | null>(null);

export function useTranscriptContext(): TranscriptContextValue {
  const context = useContext(TranscriptContext);
  if (!context) throw new Error("a row must be inside of a TranscriptContext");
  return context;
}

/** Larger events are loaded only on request. */
const MAX_AUTOMATIC_BYTES = 1_000_000;

export interface FullEvent<T> {
  readonly event: T;
  /** The full size in bytes, while the event is truncated. */
  readonly truncatedBytes: number | null;
  readonly isLoading: boolean;
  readonly problem: Problem | null;
  readonly load: () => void;
}

/** Return an event in full. It is loaded when `isNeeded`, unless it is large. */
export function useFullEvent<T extends LogEvent>(event: T, isNeeded: boolean): FullEvent<T> {
  const { log } = useTranscriptContext();
  const [isRequested, setIsRequested] = useRowState(`full ${event.seq}`, false);
  const [answer, setAnswer] = useState<{ of: T; full?: T; problem?: Problem } | null>(null);
  const current = answer?.of === event ? answer : null;
  const shouldLoad =
    event.cut !== undefined && !current && (isRequested || (isNeeded && event.cut <= MAX_AUTOMATIC_BYTES));
  useEffect(() => {
    if (!shouldLoad) return;
    let isStale = false;
    log.fullEvent(event.seq).then(
      // The server returns the event with the requested number, so the type is the same.
      (full) => isStale || setAnswer({ of: event, full: full as T }),
      (error: unknown) => isStale || setAnswer({ of: event, problem: problemOf(error, 0) }),
    );
    return () => {
      isStale = true;
    };
  }, [log, event, shouldLoad]);
  const load = () => {
    setIsRequested(() => true);
    setAnswer(null);
  };
  return {
    event: current?.full ?? event,
    truncatedBytes: current?.full ? null : (event.cut ?? null),
    isLoading: shouldLoad,
    problem: current?.problem ?? null,
    load,
  };
}
