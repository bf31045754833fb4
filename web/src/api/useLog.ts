/** The log of a run in a component: loaded where it is viewed, and live while the run is active. */
import { useEffect, useSyncExternalStore } from "react";
import { theLive } from "./liveStream";
import type { RunLog } from "./runLog";

/**
 * Return the log of a run and render again when the log changes. `lastSeq` is the newest event that the run's row
 * mentions.
 */
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
