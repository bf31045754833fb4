/** Has the pages loaded that somebody looks at. */
import { useCallback, useEffect, useState } from "react";
import { pageOf, type RunLog, useConnection } from "@/api";

/** While somebody scrolls past pages, they are not asked for. */
const PATIENCE_MS = 50;

/** Loads what is missing there; gives what tries again where that failed. */
export function useWanted(log: RunLog, from: number, to: number): () => void {
  const connection = useConnection();
  const [tries, setTries] = useState(0);
  const [first, last] = [pageOf(Math.max(1, from)), pageOf(Math.max(1, to))];
  useEffect(() => {
    if (to < 1) return;
    const timer = setTimeout(() => void log.want(from, to), tries ? 0 : PATIENCE_MS);
    return () => clearTimeout(timer);
    // Only pages matter: within one, all is loaded at once.
  }, [log, first, last, log.lastSeq, connection, tries]);
  return useCallback(() => setTries((before) => before + 1), []);
}
