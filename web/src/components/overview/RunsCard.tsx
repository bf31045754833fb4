import { useState } from "react";
import type { Stats, Status } from "@/api";
import { Segmented } from "@/components/charts/Segmented";
import { useRoving } from "@/components/charts/useRoving";
import { PartsBar } from "@/components/charts/Meter";
import { ListLink } from "@/components/overview/ListLink";
import { StatusIcon } from "@/components/ui/Badge";
import { formatCents, type OverviewLinks } from "@/views/overview";
import { formatDuration } from "@/views/time";

const OPTIONS = [
  { value: "costliest", label: "Costliest" },
  { value: "slowest", label: "Slowest" },
] as const;

/** The runs of the range that cost most, or took longest. */
export function RunsCard({ stats, links }: { stats: Stats; links: OverviewLinks }) {
  const [order, setOrder] = useState<"costliest" | "slowest">("costliest");
  const runs = stats[order];
  const roving = useRoving(runs.map(({ run_id: id }) => id));
  const valueOf = (run: (typeof runs)[number]) => (order === "costliest" ? run.cost_usd : run.duration_ms) ?? 0;
  const highest = Math.max(0, ...runs.map(valueOf));
  return (
    <section aria-labelledby="ranked" className="card">
      <header>
        <h2 id="ranked">{order === "costliest" ? "Costliest runs" : "Slowest runs"}</h2>
        <span className="grow" />
        <Segmented label="Order" options={OPTIONS} value={order} onSelect={setOrder} />
      </header>
      {runs.length === 0 && (
        <p className="empty">{order === "costliest" ? "No run had a cost." : "No run has ended."}</p>
      )}
      <ol aria-labelledby="ranked" onKeyDown={roving.onKeyDown}>
        {runs.map((run) => (
          <li key={run.run_id}>
            <ListLink to={links.run(run)} className="ranked" {...roving.item(run.run_id)}>
              <StatusIcon status={run.status as Status} className="size-3.5" />
              <span className="cut grow">
                {run.title || run.worker} <span className="m3">· {run.worker}</span>
              </span>
              <span className={order === "slowest" ? "num figure-strong" : "num m3"}>
                {run.duration_ms === null ? "–" : formatDuration(run.duration_ms)}
              </span>
              <span className="ranked-bar">
                <PartsBar total={highest} parts={[{ value: valueOf(run), color: "var(--cat-1)" }]} />
              </span>
              <span className={order === "costliest" ? "num figure-strong" : "num m3"}>
                {formatCents(run.cost_usd)}
              </span>
            </ListLink>
          </li>
        ))}
      </ol>
    </section>
  );
}
