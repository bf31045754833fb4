import { useEffect, useMemo, useState } from "react";
import type { Run, RunList } from "@/api";
import { ageMs, startOf } from "@/views/days";
import { runsOf } from "@/views/runRows";

const MINUTE_MS = 60_000;

/** Return the runs of the loaded pages. With an age as `since`, runs leave the list when they have become older. */
export function useListedRuns(pages: readonly RunList[], since: string | undefined): readonly Run[] {
  const isAge = since !== undefined && ageMs(since) !== null;
  const now = useMinute(isAge);
  return useMemo(() => {
    const runs = runsOf(pages);
    const start = isAge ? Date.parse(startOf(since, now) ?? "") : -Infinity;
    return isAge ? runs.filter((run) => Date.parse(run.started_at) >= start) : runs;
  }, [pages, isAge, since, now]);
}

/** Return the time to the minute, while it is needed. */
function useMinute(isNeeded: boolean): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    if (!isNeeded) return;
    const timer = setInterval(() => setNow(Date.now()), MINUTE_MS);
    return () => clearInterval(timer);
  }, [isNeeded]);
  return now;
}
