import type { RunDetail } from "@/api";
import { StatusBadge } from "@/components/ui/Badge";
import { TimeAgo } from "@/components/ui/Time";
import { clientText, waitText } from "@/views/detail";
import { Trail } from "@/components/again/Trail";
import { Fact } from "./Fact";
import { OwnerLink, RunLink } from "./links";

/** A line of short facts about a run, as far as they are known and have room: the most important first. */
export function Facts({ run }: { run: RunDetail }) {
  const isQueued = run.status === "queued";
  const waitLabel = waitText(run.waits_for);
  const channel = run.channel_name || run.channel_id;
  return (
    <div className="flex min-h-5 items-start gap-2 text-12/5 text-text-3 md:pl-[26px]">
      {/* Each fact begins with a separator; those at the beginning of a line are cut off. */}
      <div className="max-h-10 min-w-0 flex-1 overflow-hidden md:max-h-5">
        <ul aria-label="About this run" className="-ml-3.5 flex flex-wrap">
          <Fact>
            <StatusBadge status={run.status} interrupted={run.interrupted} />
          </Fact>
          {waitLabel !== null && <Fact>{waitLabel}</Fact>}
          {run.parent_run_id !== null && (
            <Fact>
              <RunLink id={run.parent_run_id}>Parent run</RunLink>
            </Fact>
          )}
          <Trail run={run} />
          <Fact title="Worker type">{run.worker_type}</Fact>
          {run.name !== run.worker_type && <Fact title="Worker">{run.name}</Fact>}
          {run.provider !== null && run.provider !== run.worker_type && <Fact title="Provider">{run.provider}</Fact>}
          {run.model !== null && <Fact title="Model">{run.model}</Fact>}
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
          <Fact>
            {isQueued ? "queued " : "started "}
            <TimeAgo at={isQueued ? (run.queued_at ?? run.started_at) : run.started_at} />
          </Fact>
          {run.interruptions > 0 && (
            <Fact title="The run was interrupted and started again">attempt {run.attempt}</Fact>
          )}
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
          {run.host !== null && <Fact title="Host">{run.host}</Fact>}
        </ul>
      </div>
      <span title={`Run ${run.id}`} className="font-mono max-md:hidden">
        {run.id.slice(0, 8)}
      </span>
    </div>
  );
}
