import clsx from "clsx";
import { useMemo, useState } from "react";
import type { RunDetail, Spans } from "@/api";
import { useNow } from "@/components/ui/Time";
import type { Break } from "@/views/timeAxis";
import { type Bar, barName, type Chart, chartOf, type Ending, endingOf, isWait, lanesOf } from "@/views/timeChart";
import { goesOn } from "@/views/detail";
import { clock, duration } from "@/views/time";
import { BarButton, STRIPES } from "./BarButton";

const LANE_PX = 18;
const LANES_SEEN = 12;
/** With more breaks than this, their labels would overlap. */
const BREAKS_TOLD = 4;
/** Drawn over the bars, so that a bar that spans a break looks cut. */
const SIGN =
  "pointer-events-none absolute inset-y-0 border-x border-dashed border-ink-faint bg-[repeating-linear-gradient(115deg,var(--app)_0_2px,transparent_2px_8px)]";

interface Props {
  spans: Spans;
  run: RunDetail;
  /** Events by which something ended because the run was cancelled. */
  left: ReadonlySet<number>;
  onEvent: (seq: number) => void;
}

/** The chart of where the time went. It grows while the run is active. */
export function Bars({ spans, run, left, onEvent }: Props) {
  const lanes = useMemo(() => lanesOf(spans), [spans]);
  const told = { left, onEvent };
  if (goesOn(run.status) && spans.ended_at === null)
    return <Growing lanes={lanes} waits={run.status === "waiting"} {...told} />;
  const chart = chartOf(lanes, null, false);
  // Some logs have no times, so there is nothing to draw.
  return chart.ms > 0 ? <Drawn chart={chart} {...told} /> : null;
}

function Growing({ lanes, waits, ...rest }: { lanes: ReturnType<typeof lanesOf>; waits: boolean } & Told) {
  return <Drawn chart={chartOf(lanes, useNow(), waits)} {...rest} />;
}

interface Told {
  left: ReadonlySet<number>;
  onEvent: (seq: number) => void;
}

function Drawn({ chart, left, onEvent }: { chart: Chart } & Told) {
  const [looked, setLooked] = useState<number | null>(null);
  const [entered, setEntered] = useState<number | null>(null);
  const bars = chart.bars;
  const endOf = ({ span }: Bar) => endingOf(span, left);
  const at = bars.findIndex((bar) => bar.span.seq === entered);
  return (
    <div className={clsx("flex max-h-1/2 flex-col border-b border-line px-3 pb-1.5", chart.lanes > 1 && "min-h-16")}>
      <div className="min-h-0 overflow-x-hidden overflow-y-auto" style={{ maxHeight: LANES_SEEN * LANE_PX }}>
        <ol
          aria-label="Where the time went"
          className="relative"
          style={{ height: chart.lanes * LANE_PX }}
          onPointerLeave={() => setLooked(null)}
          onBlur={() => setLooked(null)}
          onKeyDown={(event) => {
            const next = bars[stepped(event.key, at, bars.length)];
            if (!next) return;
            event.preventDefault();
            setEntered(next.span.seq);
            event.currentTarget.querySelector<HTMLElement>(`[data-bar="${next.span.seq}"]`)?.focus();
          }}
        >
          {chart.breaks.map((one) => (
            <li key={one.from} title={idle(one)} className="absolute inset-y-0 bg-app-hover" style={across(one)}>
              <span className="sr-only">{idle(one)}</span>
            </li>
          ))}
          {bars.map((bar, index) => (
            <BarButton
              key={bar.span.seq}
              bar={bar}
              ending={endOf(bar)}
              top={bar.lane * LANE_PX}
              isEntry={index === Math.max(0, at)}
              onLook={setLooked}
              onEnter={setEntered}
              onGo={onEvent}
            />
          ))}
          {chart.breaks.map((one) => (
            <li key={`sign ${one.from}`} aria-hidden className={SIGN} style={across(one)} />
          ))}
        </ol>
      </div>
      <Lengths chart={chart} />
      <p className="mt-1 flex h-4 gap-2 truncate text-xs/4 text-ink-faint tabular-nums">
        <Said bar={bars.find((bar) => bar.span.seq === looked)} endOf={endOf} chart={chart} />
      </p>
    </div>
  );
}

const idle = (one: Break) => `Nothing happened for ${duration(one.ms)}`;
const across = ({ from, to }: Break) => ({ left: `${from * 100}%`, width: `${(to - from) * 100}%` });

/** Labels with the real length of the breaks. */
function Lengths({ chart }: { chart: Chart }) {
  if (chart.breaks.length === 0 || chart.breaks.length > BREAKS_TOLD) return null;
  return (
    <div aria-hidden className="relative h-3.5 text-[10px]/3.5 text-ink-faint">
      {chart.breaks.map((one) => (
        <span
          key={one.from}
          className="absolute max-w-20 -translate-x-1/2 truncate whitespace-nowrap"
          style={{ left: `clamp(1.5rem, ${((one.from + one.to) / 2) * 100}%, calc(100% - 1.5rem))` }}
        >
          {duration(one.ms)}
        </span>
      ))}
    </div>
  );
}

/** The bar under the pointer or focus; otherwise the total time. */
function Said({ bar, endOf, chart }: { bar: Bar | undefined; endOf: (bar: Bar) => Ending | null; chart: Chart }) {
  if (bar) {
    return (
      <>
        <span className="truncate text-ink">{barName(bar)}</span>
        <span>
          {bar.open ? "for " : ""}
          {duration(bar.ms)}
          {bar.count > 1 && " together"}
        </span>
        <span>from {clock(bar.span.started_at)}</span>
        {isWait(bar.span) && <span>waiting</span>}
        {endOf(bar) && <span className={endOf(bar) === "failed" ? "text-failed" : "text-quiet"}>{endOf(bar)}</span>}
      </>
    );
  }
  return (
    <>
      <span className="truncate">{duration(chart.ms)} in all</span>
      {chart.bars.some((one) => isWait(one.span)) && (
        <span className="flex shrink-0 items-center gap-1">
          <span aria-hidden className={clsx("size-3 rounded-sm ring-1 ring-current/45 ring-inset", STRIPES)} /> waiting
        </span>
      )}
    </>
  );
}

/** Return the index that an arrow key leads to; -1 for other keys. */
function stepped(key: string, at: number, count: number): number {
  if (key === "ArrowRight" || key === "ArrowDown") return Math.min(at + 1, count - 1);
  if (key === "ArrowLeft" || key === "ArrowUp") return Math.max(at - 1, 0);
  if (key === "Home") return 0;
  return key === "End" ? count - 1 : -1;
}
