import { useQuery } from "@tanstack/react-query";
import { type QueueGroup, queueQuery } from "@/api";
import { ErrorLine, SkeletonRows } from "@/components/charts/ErrorLine";
import { RunLink } from "@/components/charts/RunLink";
import { useRoving } from "@/components/charts/useRoving";
import { Icon, type IconName } from "@/components/ui/Icon";
import { useNow } from "@/components/ui/Time";
import { countText, missingLabel, priorityText, reasonTitle, reasonTone, type Tone } from "@/views/fleet";
import { formatShort } from "@/views/time";

const ICONS: Partial<Record<Tone, IconName>> = { failed: "warn", running: "pause" };

/** The queued runs, grouped by what they wait for. */
export function QueueCard({ onAddHost }: { onAddHost: (label: string) => void }) {
  const query = useQuery(queueQuery);
  const queue = query.data;
  const roving = useRoving(
    queue?.groups.flatMap((group, index) => [
      ...(missingLabel(group) === null ? [] : [`group ${index}`]),
      ...group.runs.map((run) => run.run_id),
    ]) ?? [],
  );
  return (
    <section aria-labelledby="queue" className="card">
      <header>
        <h2 id="queue">Queue</h2>
        {queue && queue.total > 0 && (
          <span className="m3">{countText(queue.total, "run")}, grouped by what they wait for</span>
        )}
      </header>
      {query.isPending && <SkeletonRows subject="the queue" rows={2} height={26} />}
      {query.isError && !queue && (
        <ErrorLine what="The queue cannot be shown" error={query.error} onRetry={() => void query.refetch()} />
      )}
      {queue?.total === 0 && <p className="empty">Nothing waits. Every run has started.</p>}
      {queue && queue.total > 0 && (
        <div onKeyDown={roving.onKeyDown}>
          {queue.groups.map((group, index) => (
            <Group
              key={`${group.reason} ${group.message}`}
              group={group}
              index={index}
              roving={roving}
              onAddHost={onAddHost}
            />
          ))}
        </div>
      )}
    </section>
  );
}

interface GroupProps {
  group: QueueGroup;
  index: number;
  roving: ReturnType<typeof useRoving>;
  onAddHost: (label: string) => void;
}

function Group({ group, index, roving, onAddHost }: GroupProps) {
  const now = useNow();
  const tone = reasonTone(group);
  const label = missingLabel(group);
  const rest = group.total - group.runs.length;
  return (
    <section aria-label={reasonTitle(group)}>
      <div className="queue-head">
        <Icon
          name={ICONS[tone] ?? "clock"}
          className={`size-3.5 ${tone === "quiet" ? "text-queued" : `text-${tone}`}`}
        />
        <b className="cut" title={reasonTitle(group)}>
          {reasonTitle(group)}
        </b>
        <span className="m3">{countText(group.total, "run")}</span>
        <span className="grow" />
        {label !== null && (
          <button type="button" className="link" onClick={() => onAddHost(label)} {...roving.item(`group ${index}`)}>
            Add a host with {label}
          </button>
        )}
      </div>
      <ol aria-label={`Runs: ${reasonTitle(group)}`}>
        {group.runs.map((run, at) => (
          <li key={run.run_id}>
            <RunLink runId={run.run_id} className="queue-row" {...roving.item(run.run_id)}>
              <span className="num m3 position">{at + 1}</span>
              <span className="cut grow">
                {run.task || run.worker} <span className="m3">· {run.worker}</span>
              </span>
              {priorityText(run.priority) !== null && (
                <span className="chip" title={`Priority ${run.priority}`}>
                  {priorityText(run.priority)}
                </span>
              )}
              <span className="num m3">
                {run.queued_at !== null && formatShort(Math.max(0, now - Date.parse(run.queued_at)))}
              </span>
            </RunLink>
          </li>
        ))}
      </ol>
      {rest > 0 && <p className="queue-rest">and {rest.toLocaleString("en")} more</p>}
    </section>
  );
}
