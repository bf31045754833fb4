/** The log of a run in a component: loaded where it is viewed, and live while the run is active. */
import { useEffect, useSyncExternalStore } from "react";
import { getLiveStream } from "./liveStream";
import type { RunLog } from "./runLog";

/**
 * Return the log of a run and render again when the log changes. `lastSeq` is the newest event that the run's row
 * mentions.
 */
export function useLog(runId: string, lastSeq: number, isActive: boolean): RunLog {
  const log = getLiveStream().log(runId);
  useSyncExternalStore(log.subscribe, () => log.version);
  useEffect(() => log.extendTo(lastSeq), [log, lastSeq]);
  useEffect(() => {
    if (!isActive) return;
    return getLiveStream().follow(runId);
  }, [runId, isActive]);
  return log;
}
