import { Fragment } from "react";
import type { RunDetail } from "@/api";
import { RunLink } from "@/components/detail/links";

const EARLIER = { rerun: "Rerun of", reply: "Reply to", fork: "Fork of" } as const;
const LATER = { rerun: "rerun", reply: "reply", fork: "fork" } as const;

/** The run that this one repeats, continues or forks, and the runs that do this with it. Nothing for most runs. */
export function Trail({ run }: { run: RunDetail }) {
  const { based_on: earlier, continued_by: later } = run;
  if (earlier === null && later.length === 0) return null;
  return (
    <p className="text-12 text-text-2">
      {earlier !== null && (
        <>
          {EARLIER[earlier.kind]} <RunLink id={earlier.run_id}>{earlier.run_id.slice(0, 8)}</RunLink>
          {earlier.seq !== null && ` at event ${earlier.seq}`}
        </>
      )}
      {earlier !== null && later.length > 0 && " · "}
      {later.length > 0 && (
        <>
          Then{" "}
          {later.map(({ run_id, kind }, n) => (
            <Fragment key={run_id}>
              {n > 0 && ", "}
              {LATER[kind]} <RunLink id={run_id}>{run_id.slice(0, 8)}</RunLink>
            </Fragment>
          ))}
        </>
      )}
    </p>
  );
}
