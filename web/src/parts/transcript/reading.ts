/** What all rows of a transcript share: the log they are of, and what can be done with them. */
import { createContext, useContext, useEffect, useState } from "react";
import { type LogEvent, type Problem, problemOf, type RunLog } from "@/api";

export interface Reading {
  readonly log: RunLog;
  /** Whether more may come. */
  readonly goesOn: boolean;
  /** Why the run was cancelled; null where it was not. */
  readonly cancelled: string | null;
  /** The calls that the strip below asks somebody to answer. */
  readonly asked: ReadonlySet<string>;
  readonly onToggle: (seq: number, open: boolean) => void;
  /** Somebody wants to remember that event; undefined where its address would lead nowhere. */
  readonly onChoose: ((seq: number) => void) | undefined;
}

export const ReadingContext = createContext<Reading | null>(null);

export function useReading(): Reading {
  const reading = useContext(ReadingContext);
  if (!reading) throw new Error("a row stands outside of a transcript");
  return reading;
}

/** What is longer than this is loaded only when somebody asks for it. */
const BY_ITSELF_BYTES = 1_000_000;

export interface Whole<T> {
  readonly event: T;
  /** The bytes of it, where this is not all of it. */
  readonly cut: number | null;
  readonly loading: boolean;
  readonly problem: Problem | null;
  readonly load: () => void;
}

/** An event with nothing cut: got when it is needed, unless it is large. */
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
      // What the server gives for a number is the event of that number.
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
