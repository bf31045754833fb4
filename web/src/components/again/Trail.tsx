import { Fragment } from "react";
import type { RunDetail } from "@/api";
import { Fact } from "@/components/detail/Fact";
import { RunLink } from "@/components/detail/links";

const EARLIER = { rerun: "Rerun of", reply: "Reply to", fork: "Fork of" } as const;
const LATER = { rerun: "rerun", reply: "reply", fork: "fork" } as const;

/** The run that this one repeats, continues or forks, and the runs that do this with it. Nothing for most runs. */
export function Trail({ run: { based_on: earlier, continued_by: later } }: { run: RunDetail }) {
  return (
    <>
      {earlier !== null && (
        <Fact>
          {EARLIER[earlier.kind]} <RunLink id={earlier.run_id}>{earlier.run_id.slice(0, 8)}</RunLink>
          {earlier.seq !== null && ` at event ${earlier.seq}`}
        </Fact>
      )}
      {later.length > 0 && (
        <Fact>
          Then{" "}
          {later.map(({ run_id, kind }, n) => (
            <Fragment key={run_id}>
              {n > 0 && ", "}
              {LATER[kind]} <RunLink id={run_id}>{run_id.slice(0, 8)}</RunLink>
            </Fragment>
          ))}
        </Fact>
      )}
    </>
  );
}
