import { useState } from "react";
import type { Stats } from "@/api";
import { Segmented } from "@/components/charts/Segmented";
import { StackedBars } from "@/components/charts/StackedBars";
import { ListLink } from "@/components/overview/ListLink";
import { formatDollars, type OverviewLinks, spendChart } from "@/views/overview";
import { type Stack, STACKS } from "@/views/overviewParameters";

const OPTIONS = STACKS.map((value) => ({ value, label: value.slice(0, 1).toUpperCase() + value.slice(1) }));

interface SpendCardProps {
  stats: Stats;
  by: Stack;
  onStack: (by: Stack) => void;
  links: OverviewLinks;
}

/** What runs cost per day, stacked by model, provider or worker. */
export function SpendCard({ stats: { days, totals }, by, onStack, links }: SpendCardProps) {
  const chart = spendChart(days, by);
  const [active, setActive] = useState<string | null>(null);
  return (
    <section aria-labelledby="spend" className="card spend">
      <header>
        <h2 id="spend">Spend per day</h2>
        <span className="m3 num cut">
          {formatDollars(totals.cost_usd)} in {days.length === 1 ? "1 day" : `${days.length} days`}
          {totals.cost_usd !== null && ` · ${formatDollars(chart.average)} a day`}
        </span>
        <span className="grow" />
        <Segmented label="Stack by" options={OPTIONS} value={by} onSelect={onStack} />
      </header>
      <ul className="legend" aria-label={`Spend by ${by}`}>
        {chart.series.map((series) => (
          <li key={series.color}>
            <i aria-hidden style={{ background: series.color }} />
            {!series.isFilter ? (
              <span className="cut">{series.name}</span>
            ) : (
              <ListLink to={links.series(series.name, by)} className="cut" title={`Runs of ${series.name}`}>
                {series.name}
              </ListLink>
            )}
            <b className="num">{formatDollars(series.total)}</b>
          </li>
        ))}
        {chart.series.length === 0 && (
          <li className="m3">{totals.cost_usd === null ? "No run had a price" : "Nothing was spent"}</li>
        )}
      </ul>
      <StackedBars chart={chart} active={active} onActive={setActive} linkOf={links.day} />
    </section>
  );
}
