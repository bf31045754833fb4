import type { ReactNode } from "react";
import type { RunDetail } from "@/api";
import { TimeAgo, Duration } from "@/components/ui/Time";
import { clientText, costText, tokenText, usageText, waitText } from "@/views/detail";
import { OwnerLink, RunLink } from "./links";

/** A line of short facts about a run, as far as they are known. */
export function Facts({ run }: { run: RunDetail }) {
  const isQueued = run.status === "queued";
  const waitLabel = waitText(run.waits_for);
  const tokens = tokenText(run);
  const cost = costText(run);
  const channel = run.channel_name || run.channel_id;
  return (
    <ul aria-label="About this run" className="flex flex-wrap gap-x-1.5 gap-y-0.5 text-xs text-ink-dull">
      {waitLabel !== null && <Fact>{waitLabel}</Fact>}
      <Fact title={run.host === null ? undefined : `on ${run.host}`}>
        {isQueued ? "queued " : "started "}
        <TimeAgo at={isQueued ? (run.queued_at ?? run.started_at) : run.started_at} />
      </Fact>
      {!isQueued && (
        <Fact title="Duration">
          <Duration from={run.started_at} to={run.completed_at} ms={run.duration_ms} />
        </Fact>
      )}
      {tokens !== null && <Fact title={usageText(run)}>{tokens}</Fact>}
      {cost !== null && <Fact title="Cost of this run; with sub-runs: including all runs that it called">{cost}</Fact>}
      {run.interruptions > 0 && <Fact title="The run was interrupted and started again">attempt {run.attempt}</Fact>}
      {run.search_stopped_at !== null && (
        <Fact title="This run has more text than is indexed: the search finds nothing after this event">
          searched to #{run.search_stopped_at}
        </Fact>
      )}
      {run.client !== null && (
        <Fact title={run.client.session_id ? `Session ${run.client.session_id}` : undefined}>
          from {clientText(run.client)}
        </Fact>
      )}
      {channel && <Fact title={`Channel ${run.channel_id ?? ""}`}>{channel}</Fact>}
      {run.agent_id !== null && (
        <Fact>
          owner <OwnerLink owner={run.agent_id} />
        </Fact>
      )}
      {run.children > 0 && (
        <Fact>
          {run.children.toLocaleString("en")} {run.children === 1 ? "sub-run" : "sub-runs"}
        </Fact>
      )}
      {run.parent_run_id !== null && (
        <Fact>
          <RunLink id={run.parent_run_id}>Parent run</RunLink>
        </Fact>
      )}
    </ul>
  );
}

function Fact({ title, children }: { title?: string | undefined; children: ReactNode }) {
  return (
    <li
      title={title}
      className="max-w-full truncate not-last:after:ml-1.5 not-last:after:text-ink-faint not-last:after:content-['·']"
    >
      {children}
    </li>
  );
}
