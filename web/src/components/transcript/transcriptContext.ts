/** The context that all rows of a transcript share: their log, and what can be done with them. */
import { createContext, useContext, useEffect, useState } from "react";
import { type LogEvent, type Problem, problemOf, type RunLog } from "@/api";

export interface Reading {
  readonly log: RunLog;
  /** Whether the run may add events. */
  readonly goesOn: boolean;
  /** Why the run was cancelled; null where it was not. */
  readonly cancelled: string | null;
  /** Ids of the calls that the strip above the transcript asks about. */
  readonly asked: ReadonlySet<string>;
  readonly onToggle: (seq: number, open: boolean) => void;
  /** Put an event into the address; undefined in a nested transcript, whose events have no address. */
  readonly onChoose: ((seq: number) => void) | undefined;
}

export const ReadingContext = createContext<Reading | null>(null);

export function useReading(): Reading {
  const reading = useContext(ReadingContext);
  if (!reading) throw new Error("a row stands outside of a transcript");
  return reading;
}

/** Larger events are loaded only on request. */
const BY_ITSELF_BYTES = 1_000_000;

export interface Whole<T> {
  readonly event: T;
  /** The full size in bytes, while the event is truncated. */
  readonly cut: number | null;
  readonly loading: boolean;
  readonly problem: Problem | null;
  readonly load: () => void;
}

/** Return an event in full. It is loaded when `needed`, unless it is large. */
export function useWhole<T extends LogEvent>(event: T, needed: boolean): Whole<T> {
  const { log } = useReading();
  const [asked, setAsked] = useState(false);
  const [got, setGot] = useState<{ of: T; whole?: T; problem?: Problem } | null>(null);
  const mine = got?.of === event ? got : null;
  const wanted = event.cut !== undefined && !mine && (asked || (needed && event.cut <= BY_ITSELF_BYTES));
  useEffect(() => {
    if (!wanted) return;
    let stale = false;
    log.whole(event.seq).then(
      // The server returns the event with the requested number, so the type is the same.
      (whole) => stale || setGot({ of: event, whole: whole as T }),
      (error: unknown) => stale || setGot({ of: event, problem: problemOf(error, 0) }),
    );
    return () => {
      stale = true;
    };
  }, [log, event, wanted]);
  const load = () => {
    setAsked(true);
    setGot(null);
  };
  return {
    event: mine?.whole ?? event,
    cut: mine?.whole ? null : (event.cut ?? null),
    loading: wanted,
    problem: mine?.problem ?? null,
    load,
  };
}
