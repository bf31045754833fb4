/** The log of a run in a component: loaded as far as it is looked at, and live while it goes on. */
import { useEffect, useSyncExternalStore } from "react";
import { theLive } from "./live";
import type { RunLog } from "./log";

/** The log of a run; the component is drawn again when it changes. `reaches` is the newest event that a row tells of. */
export function useLog(runId: string, reaches: number, goesOn: boolean): RunLog {
  const log = theLive().log(runId);
  useSyncExternalStore(log.subscribe, () => log.version);
  useEffect(() => log.reaches(reaches), [log, reaches]);
  useEffect(() => {
    if (!goesOn) return;
    return theLive().follow(runId);
  }, [runId, goesOn]);
  return log;
}
