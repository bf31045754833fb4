import clsx from "clsx";
import { useRoving } from "@/components/charts/useRoving";
import { ListLink } from "@/components/overview/ListLink";
import type { AddressParams } from "@/views/addressParameters";
import { barLabel, type DayBar, formatCents, formatDollars, type SpendChart } from "@/views/overview";
import { dayNumber, formatDay } from "@/views/days";

interface StackedBarsProps {
  chart: SpendChart;
  /** The day whose parts are shown in detail. */
  active: string | null;
  onActive: (day: string | null) => void;
  /** The runs of a day. */
  linkOf: (day: string) => AddressParams;
}

/**
 * A stacked bar per day. Each bar is a link to the runs of its day; its parts are shown beside it while the pointer is on
 * it or it has the focus. The arrow keys move from day to day.
 */
export function StackedBars({ chart: { bars, ticks, top, average }, active, onActive, linkOf }: StackedBarsProps) {
  const roving = useRoving(bars.map(({ day }) => day).reverse());
  const shown = bars.findIndex(({ day }) => day === active);
  const bar = bars[shown];
  return (
    <div className={clsx("stacked", bars.length > 14 && "many")}>
      <div aria-hidden className="axis">
        {ticks.map((tick) => (
          <span key={tick} className="num" style={{ bottom: `${(100 * tick) / top}%` }}>
            {formatDollars(tick)}
          </span>
        ))}
      </div>
      <div className="plot" onMouseLeave={() => onActive(null)}>
        <div aria-hidden className="plot-lines">
          {ticks.map((tick) => (
            <i key={tick} className="grid-line" style={{ bottom: `${(100 * tick) / top}%` }} />
          ))}
          {average > 0 && <i className="average" style={{ bottom: `${(100 * average) / top}%` }} />}
        </div>
        <ul aria-label="Days" onKeyDown={roving.onKeyDown} onBlur={() => onActive(null)}>
          {bars.map((each, index) => {
            const item = roving.item(each.day);
            return (
              <li
                key={each.day}
                className={clsx(each.day === active && "active")}
                onMouseEnter={() => onActive(each.day)}
              >
                <ListLink
                  to={linkOf(each.day)}
                  aria-label={barLabel(each)}
                  data-day={each.day}
                  {...item}
                  onFocus={() => {
                    item.onFocus();
                    onActive(each.day);
                  }}
                >
                  {each.parts.map(({ series, value }) => (
                    <i key={series.color} style={{ height: `${(100 * value) / top}%`, background: series.color }} />
                  ))}
                </ListLink>
                <span aria-hidden className={clsx("num", index === bars.length - 1 && "today")}>
                  {dayNumber(each.day)}
                </span>
              </li>
            );
          })}
        </ul>
        {bar && <Tooltip bar={bar} position={(shown + 0.5) / bars.length} />}
      </div>
    </div>
  );
}

/** The parts of a bar; on the side that has room. Screen readers get the same from the bar's name. */
function Tooltip({ bar, position }: { bar: DayBar; position: number }) {
  const side =
    position > 0.5 ? { right: `calc(${100 * (1 - position)}% + 24px)` } : { left: `calc(${100 * position}% + 24px)` };
  return (
    <div aria-hidden className="tip" style={side}>
      <b>
        {formatDay(bar.day)} <span className="num">{formatCents(bar.total)}</span>
      </b>
      {bar.parts.toReversed().map(({ series, value }) => (
        <div key={series.color}>
          <i style={{ background: series.color }} />
          <span className="cut">{series.name}</span>
          <span className="num">{formatCents(value)}</span>
        </div>
      ))}
      <div className="m3 num">
        {bar.runs.toLocaleString("en")} {bar.runs === 1 ? "run" : "runs"}
        {bar.failed > 0 && <span className="t-failed">{bar.failed} failed</span>}
      </div>
    </div>
  );
}
