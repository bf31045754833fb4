import clsx from "clsx";
import { useMemo, useState, useSyncExternalStore } from "react";
import type { RunDetail, RunLog, Spans } from "@/api";
import type { ViewSync } from "@/components/detail/viewSync";
import { useNow } from "@/components/ui/Time";
import type { Break } from "@/views/timeAxis";
import { type Bar, barName, type Chart, chartOf, type Ending, endingOf, isWait, lanesOf } from "@/views/timeChart";
import { isActive } from "@/views/detail";
import { formatClock, formatDuration } from "@/views/time";
import { BarButton, KINDS, STRIPES } from "./BarButton";

const LANE_PX = 10;
const MAX_VISIBLE_LANES = 6;
/** With more breaks than this, their labels would overlap. */
const MAX_BREAK_LABELS = 4;
/** Drawn over the bars, so that a bar that spans a break looks cut. */
const BREAK_CLASS =
  "pointer-events-none absolute inset-y-0 border-x border-dashed border-icon bg-[repeating-linear-gradient(115deg,var(--bg)_0_2px,transparent_2px_8px)]";

interface Props {
  spans: Spans;
  run: RunDetail;
  /** Events by which something ended because the run was cancelled. */
  cancelledBy: ReadonlySet<number>;
  onEvent: (seq: number) => void;
  sync: ViewSync;
  log: RunLog;
}

/** The chart of where the time went. It grows while the run is active. */
export function TimeChart({ spans, run, cancelledBy, onEvent, sync, log }: Props) {
  const lanes = useMemo(() => lanesOf(spans), [spans]);
  const chartProps = { cancelledBy, onEvent, sync, log };
  if (isActive(run.status) && spans.ended_at === null)
    return <GrowingChart lanes={lanes} isWaiting={run.status === "waiting"} {...chartProps} />;
  const chart = chartOf(lanes, null, false);
  // Some logs have no times, so there is nothing to draw.
  return chart.ms > 0 ? <BarList chart={chart} {...chartProps} /> : null;
}

/** The place of the chart until the run has spans: what is below must not jump when they come. */
export function EmptyChart() {
  return (
    <div aria-hidden className={CHART_CLASS}>
      <Legend bars={[]} />
      <div style={{ height: heightOf(0) }} />
      <p className="mt-1 h-4" />
    </div>
  );
}

const CHART_CLASS = "flex shrink-0 flex-col border-b border-border px-3 pt-2 pb-1.5";

const heightOf = (lanes: number) => Math.min(MAX_VISIBLE_LANES, Math.max(3, lanes)) * LANE_PX + 4;

function GrowingChart({
  lanes,
  isWaiting,
  ...rest
}: { lanes: ReturnType<typeof lanesOf>; isWaiting: boolean } & ChartProps) {
  return <BarList chart={chartOf(lanes, useNow(), isWaiting)} {...rest} />;
}

interface ChartProps {
  cancelledBy: ReadonlySet<number>;
  onEvent: (seq: number) => void;
  sync: ViewSync;
  log: RunLog;
}

function BarList({ chart, cancelledBy, onEvent, sync, log }: { chart: Chart } & ChartProps) {
  const [hoveredSeq, setHoveredSeq] = useState<number | null>(null);
  const [focusedSeq, setFocusedSeq] = useState<number | null>(null);
  const bars = chart.bars;
  const endingOfBar = ({ span }: Bar) => endingOf(span, cancelledBy);
  const focusedIndex = bars.findIndex((bar) => bar.span.seq === focusedSeq);
  return (
    <div className={CHART_CLASS}>
      <Legend bars={bars} />
      <div className="thin-scroll relative overflow-x-hidden overflow-y-auto" style={{ height: heightOf(chart.lanes) }}>
        <VisibleFrame chart={chart} sync={sync} log={log} />
        <ol
          aria-label="Where the time went"
          className="relative"
          style={{ height: chart.lanes * LANE_PX }}
          onPointerLeave={() => setHoveredSeq(null)}
          onBlur={() => setHoveredSeq(null)}
          onKeyDown={(event) => {
            const next = bars[indexAfterKey(event.key, focusedIndex, bars.length)];
            if (!next) return;
            event.preventDefault();
            setFocusedSeq(next.span.seq);
            event.currentTarget.querySelector<HTMLElement>(`[data-bar="${next.span.seq}"]`)?.focus();
          }}
        >
          {chart.breaks.map((gap) => (
            <li
              key={gap.from}
              title={idleText(gap)}
              className="absolute inset-y-0 bg-bg-hover"
              style={horizontalStyle(gap)}
            >
              <span className="sr-only">{idleText(gap)}</span>
            </li>
          ))}
          {bars.map((bar, index) => (
            <BarButton
              key={bar.span.seq}
              bar={bar}
              ending={endingOfBar(bar)}
              top={bar.lane * LANE_PX}
              isTabStop={index === Math.max(0, focusedIndex)}
              onHover={setHoveredSeq}
              onFocus={setFocusedSeq}
              onEvent={onEvent}
            />
          ))}
          {chart.breaks.map((gap) => (
            <li key={`sign ${gap.from}`} aria-hidden className={BREAK_CLASS} style={horizontalStyle(gap)} />
          ))}
        </ol>
      </div>
      <BreakLabels chart={chart} />
      <p className="mt-1 flex h-4 gap-2 truncate text-11/4 text-text-3 tabular-nums">
        <ChartCaption bar={bars.find((bar) => bar.span.seq === hoveredSeq)} endingOfBar={endingOfBar} chart={chart} />
      </p>
    </div>
  );
}

/** What the colors mean, as far as they are in the chart. */
function Legend({ bars }: { bars: readonly Bar[] }) {
  const kinds = new Set(bars.map((bar) => bar.span.kind));
  return (
    <div aria-hidden className="mb-1.5 flex items-baseline gap-2.5 text-11 whitespace-nowrap text-text-3">
      <b className="flex-1 text-12 font-semibold text-text">Timeline</b>
      {Object.entries(KINDS).map(
        ([kind, { word, color }]) =>
          kinds.has(kind as keyof typeof KINDS) && (
            <span key={kind} className="flex items-baseline gap-1">
              <i className={clsx("size-[7px] rounded-[2px]", color)} />
              {word}
            </span>
          ),
      )}
    </div>
  );
}

/** A frame around what the transcript shows now. */
function VisibleFrame({ chart, sync, log }: { chart: Chart; sync: ViewSync; log: RunLog }) {
  const { first, last } = useSyncExternalStore(sync.subscribe, sync.getVisible);
  const [from, to] = [log.event(first)?.timestamp, log.event(last)?.timestamp];
  if (!from || !to) return null;
  // What is being typed and open calls come after the newest event: they reach to the end of the chart.
  const isAtEnd = last >= log.lastSeq;
  const [left, right] = [chart.at(Date.parse(from)), isAtEnd ? 1 : chart.at(Date.parse(to))];
  return (
    <i
      aria-hidden
      data-frame
      className="pointer-events-none absolute inset-y-0 min-w-1 rounded-[3px] border border-accent-line bg-accent-bg"
      style={{ left: `min(${left * 100}%, calc(100% - 4px))`, width: `${(right - left) * 100}%` }}
    />
  );
}

const idleText = (gap: Break) => `Nothing happened for ${formatDuration(gap.ms)}`;
const horizontalStyle = ({ from, to }: Break) => ({ left: `${from * 100}%`, width: `${(to - from) * 100}%` });

/** Labels with the real length of the breaks. */
function BreakLabels({ chart }: { chart: Chart }) {
  if (chart.breaks.length === 0 || chart.breaks.length > MAX_BREAK_LABELS) return null;
  return (
    <div aria-hidden className="relative h-3.5 text-[10px]/3.5 text-text-3">
      {chart.breaks.map((gap) => (
        <span
          key={gap.from}
          className="absolute max-w-20 -translate-x-1/2 truncate whitespace-nowrap"
          style={{ left: `clamp(1.5rem, ${((gap.from + gap.to) / 2) * 100}%, calc(100% - 1.5rem))` }}
        >
          {formatDuration(gap.ms)}
        </span>
      ))}
    </div>
  );
}

/** The bar under the pointer or focus; otherwise the total time. */
function ChartCaption({
  bar,
  endingOfBar,
  chart,
}: {
  bar: Bar | undefined;
  endingOfBar: (bar: Bar) => Ending | null;
  chart: Chart;
}) {
  if (bar) {
    return (
      <>
        <span className="truncate text-text">{barName(bar)}</span>
        <span>
          {bar.isOpen ? "for " : ""}
          {formatDuration(bar.ms)}
          {bar.count > 1 && " in total"}
        </span>
        <span>from {formatClock(bar.span.started_at)}</span>
        {isWait(bar.span) && <span>waiting</span>}
        {endingOfBar(bar) && (
          <span className={endingOfBar(bar) === "failed" ? "text-failed-text" : "text-queued-text"}>
            {endingOfBar(bar)}
          </span>
        )}
      </>
    );
  }
  return (
    <>
      <span className="truncate">{formatDuration(chart.ms)} in total</span>
      {chart.bars.some((gap) => isWait(gap.span)) && (
        <span className="flex shrink-0 items-center gap-1">
          <span aria-hidden className={clsx("size-3 rounded-sm ring-1 ring-current/45 ring-inset", STRIPES)} /> waiting
        </span>
      )}
    </>
  );
}

/** Return the index that an arrow key leads to; -1 for other keys. */
function indexAfterKey(key: string, focusedIndex: number, count: number): number {
  if (key === "ArrowRight" || key === "ArrowDown") return Math.min(focusedIndex + 1, count - 1);
  if (key === "ArrowLeft" || key === "ArrowUp") return Math.max(focusedIndex - 1, 0);
  if (key === "Home") return 0;
  return key === "End" ? count - 1 : -1;
}
