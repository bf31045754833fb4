/** Load the pages of a log that are in sight. */
import { useCallback, useEffect, useEffectEvent, useState } from "react";
import { pageOf, type RunLog, useConnection } from "@/api";

/** Delay before loading, so that pages the user scrolls past are not requested. */
const LOAD_DELAY_MS = 50;
/** Delay before a failed load is repeated. */
const RETRY_MS = 3_000;

/** Load the missing events of a range. Return a function that tries again after a failure. */
export function useLoadRange(log: RunLog, from: number, to: number): () => void {
  const connection = useConnection();
  const [tries, setTries] = useState(0);
  const retry = useCallback(() => setTries((before) => before + 1), []);
  const [first, last] = [pageOf(Math.max(1, from)), pageOf(Math.max(1, to))];
  const lacks = log.lacks(from, to);
  // Only the pages matter: a page is loaded at once. New events must not restart the timer: if they arrive faster
  // than it fires, it would never fire.
  const load = useEffectEvent(() => void log.load(from, to));
  useEffect(() => {
    const timer = setTimeout(() => load(), LOAD_DELAY_MS);
    return () => clearTimeout(timer);
  }, [log, first, last, lacks, connection, tries]);
  const { problem } = log;
  useEffect(() => {
    if (!problem) return;
    const timer = setTimeout(retry, RETRY_MS);
    return () => clearTimeout(timer);
  }, [problem, retry]);
  return retry;
}
