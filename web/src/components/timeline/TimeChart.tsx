import clsx from "clsx";
import { useMemo, useState } from "react";
import type { RunDetail, Spans } from "@/api";
import { useNow } from "@/components/ui/Time";
import type { Break } from "@/views/timeAxis";
import { type Bar, barName, type Chart, chartOf, type Ending, endingOf, isWait, lanesOf } from "@/views/timeChart";
import { isActive } from "@/views/detail";
import { formatClock, formatDuration } from "@/views/time";
import { BarButton, STRIPES } from "./BarButton";

const LANE_PX = 18;
const MAX_VISIBLE_LANES = 12;
/** With more breaks than this, their labels would overlap. */
const MAX_BREAK_LABELS = 4;
/** Drawn over the bars, so that a bar that spans a break looks cut. */
const BREAK_CLASS =
  "pointer-events-none absolute inset-y-0 border-x border-dashed border-ink-faint bg-[repeating-linear-gradient(115deg,var(--app)_0_2px,transparent_2px_8px)]";

interface Props {
  spans: Spans;
  run: RunDetail;
  /** Events by which something ended because the run was cancelled. */
  cancelledBy: ReadonlySet<number>;
  onEvent: (seq: number) => void;
}

/** The chart of where the time went. It grows while the run is active. */
export function TimeChart({ spans, run, cancelledBy, onEvent }: Props) {
  const lanes = useMemo(() => lanesOf(spans), [spans]);
  const chartProps = { cancelledBy, onEvent };
  if (isActive(run.status) && spans.ended_at === null)
    return <GrowingChart lanes={lanes} isWaiting={run.status === "waiting"} {...chartProps} />;
  const chart = chartOf(lanes, null, false);
  // Some logs have no times, so there is nothing to draw.
  return chart.ms > 0 ? <BarList chart={chart} {...chartProps} /> : null;
}

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
}

function BarList({ chart, cancelledBy, onEvent }: { chart: Chart } & ChartProps) {
  const [hoveredSeq, setHoveredSeq] = useState<number | null>(null);
  const [focusedSeq, setFocusedSeq] = useState<number | null>(null);
  const bars = chart.bars;
  const endingOfBar = ({ span }: Bar) => endingOf(span, cancelledBy);
  const focusedIndex = bars.findIndex((bar) => bar.span.seq === focusedSeq);
  return (
    <div className={clsx("flex max-h-1/2 flex-col border-b border-line px-3 pb-1.5", chart.lanes > 1 && "min-h-16")}>
      <div className="min-h-0 overflow-x-hidden overflow-y-auto" style={{ maxHeight: MAX_VISIBLE_LANES * LANE_PX }}>
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
              className="absolute inset-y-0 bg-app-hover"
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
      <p className="mt-1 flex h-4 gap-2 truncate text-xs/4 text-ink-faint tabular-nums">
        <ChartCaption bar={bars.find((bar) => bar.span.seq === hoveredSeq)} endingOfBar={endingOfBar} chart={chart} />
      </p>
    </div>
  );
}

const idleText = (gap: Break) => `Nothing happened for ${formatDuration(gap.ms)}`;
const horizontalStyle = ({ from, to }: Break) => ({ cancelledBy: `${from * 100}%`, width: `${(to - from) * 100}%` });

/** Labels with the real length of the breaks. */
function BreakLabels({ chart }: { chart: Chart }) {
  if (chart.breaks.length === 0 || chart.breaks.length > MAX_BREAK_LABELS) return null;
  return (
    <div aria-hidden className="relative h-3.5 text-[10px]/3.5 text-ink-faint">
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
        <span className="truncate text-ink">{barName(bar)}</span>
        <span>
          {bar.isOpen ? "for " : ""}
          {formatDuration(bar.ms)}
          {bar.count > 1 && " in total"}
        </span>
        <span>from {formatClock(bar.span.started_at)}</span>
        {isWait(bar.span) && <span>waiting</span>}
        {endingOfBar(bar) && (
          <span className={endingOfBar(bar) === "failed" ? "text-failed" : "text-quiet"}>{endingOfBar(bar)}</span>
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
