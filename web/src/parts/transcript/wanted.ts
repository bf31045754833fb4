/** Has the pages loaded that somebody looks at. */
import { useCallback, useEffect, useEffectEvent, useState } from "react";
import { pageOf, type RunLog, useConnection } from "@/api";

/** While somebody scrolls past pages, they are not asked for. */
const PATIENCE_MS = 50;
/** How soon a load that failed is tried again. */
const AGAIN_MS = 3_000;

/** Loads what is missing there; gives what tries again where that failed. */
export function useWanted(log: RunLog, from: number, to: number): () => void {
  const connection = useConnection();
  const [tries, setTries] = useState(0);
  const again = useCallback(() => setTries((before) => before + 1), []);
  const [first, last] = [pageOf(Math.max(1, from)), pageOf(Math.max(1, to))];
  const lacks = log.lacks(from, to);
  // Only pages matter: within one, all is loaded at once. New events must not restart the timer: it would never end
  // where they come faster than it does.
  const load = useEffectEvent(() => void log.want(from, to));
  useEffect(() => {
    const timer = setTimeout(() => load(), PATIENCE_MS);
    return () => clearTimeout(timer);
  }, [log, first, last, lacks, connection, tries]);
  const { problem } = log;
  useEffect(() => {
    if (!problem) return;
    const timer = setTimeout(again, AGAIN_MS);
    return () => clearTimeout(timer);
  }, [problem, again]);
  return again;
}
