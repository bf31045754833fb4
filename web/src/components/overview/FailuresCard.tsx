import type { Stats } from "@/api";
import { BarStrip } from "@/components/charts/BarStrip";
import { useRoving } from "@/components/charts/useRoving";
import { ListLink } from "@/components/overview/ListLink";
import { buttonClass } from "@/components/ui/Button";
import { useNow } from "@/components/ui/Time";
import { countText } from "@/views/fleet";
import { type OverviewLinks, workersText } from "@/views/overview";
import { formatAge } from "@/views/time";

/** The failures of the range, grouped by their error: how many, of which workers, and when. */
export function FailuresCard({ stats: { failures, totals, days }, links }: { stats: Stats; links: OverviewLinks }) {
  const now = useNow();
  const roving = useRoving(failures.map((_, index) => String(index)));
  return (
    <section aria-labelledby="failures" className="card">
      <header>
        <h2 id="failures">Failures</h2>
        {totals.failed > 0 && (
          <span className="m3 num cut">
            {totals.failed.toLocaleString("en")} in {countText(days.length, "day")}, grouped by error
          </span>
        )}
        <span className="grow" />
        {totals.failed > 0 && (
          <ListLink to={links.failures} className={buttonClass("ghost")}>
            All {totals.failed.toLocaleString("en")}
          </ListLink>
        )}
      </header>
      {failures.length === 0 && <p className="empty">Nothing failed.</p>}
      <ul aria-labelledby="failures" onKeyDown={roving.onKeyDown}>
        {failures.map((group, index) => (
          <li key={index}>
            <ListLink to={links.failure(group)} className="failure" {...roving.item(String(index))}>
              <b className="num">{group.total.toLocaleString("en")}</b>
              <span className="grow">
                <span className="mono cut block" title={group.message}>
                  {group.message || group.code}
                </span>
                <span className="m3 cut block">
                  {group.code} · {workersText(group.workers)}
                </span>
              </span>
              <span className="failure-days">
                <BarStrip
                  bars={group.per_day.map((value) => [{ value, color: "var(--failed)" }])}
                  highest={Math.max(...group.per_day)}
                  label={`Per day: ${group.per_day.join(", ")}`}
                  width={70}
                  height={18}
                  hasBaseMarks
                />
              </span>
              <span className="m3 num age">{group.last_at !== null && formatAge(group.last_at, now)}</span>
            </ListLink>
          </li>
        ))}
      </ul>
    </section>
  );
}
