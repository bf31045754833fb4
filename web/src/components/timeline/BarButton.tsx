import clsx from "clsx";
import { memo } from "react";
import type { Span } from "@/api";
import { type Bar, barName, type Ending, isWait } from "@/views/timeChart";
import { formatDuration } from "@/views/time";

export const KINDS: Record<Span["kind"], { word: string; color: string }> = {
  step: { word: "step", color: "bg-cat-2" },
  tool: { word: "tool", color: "bg-n-8" },
  run: { word: "sub-run", color: "bg-cat-3" },
};
const ENDINGS: Record<Ending, string> = { failed: "bg-failed", cancelled: "bg-n-7" };
/** Stripes for a bar that only waits. */
export const STRIPES = "bg-[repeating-linear-gradient(135deg,var(--waiting)_0_2px,var(--bg-side)_2px_4px)]";

interface Props {
  bar: Bar;
  ending: Ending | null;
  top: number;
  /** Whether Tab enters the chart here; arrow keys move on. */
  isTabStop: boolean;
  onHover: (seq: number) => void;
  onFocus: (seq: number) => void;
  onEvent: (seq: number) => void;
}

/** A bar of the chart. Memoized: a chart may have more than a thousand. */
export const BarButton = memo(function BarButton({ bar, ending, top, isTabStop, onHover, onFocus, onEvent }: Props) {
  const { span, from, to } = bar;
  const kind = KINDS[span.kind];
  const isWaiting = isWait(span);
  const name = barName(bar);
  const label = `${name}, ${isWaiting ? "waiting" : kind.word}, ${bar.isOpen ? "open for " : ""}${formatDuration(bar.ms)}${bar.count > 1 ? " in total" : ""}${ending ? `, ${ending}` : ""}`;
  return (
    <li
      className="absolute h-[7px] min-w-0.5"
      style={{ top, left: `min(${from * 100}%, calc(100% - 2px))`, width: `${(to - from) * 100}%` }}
    >
      <button
        type="button"
        data-bar={span.seq}
        data-waits={isWaiting || undefined}
        aria-label={label}
        title={label}
        tabIndex={isTabStop ? 0 : -1}
        onPointerEnter={() => onHover(span.seq)}
        onFocus={() => {
          onHover(span.seq);
          onFocus(span.seq);
        }}
        onClick={() => onEvent(span.seq)}
        className={clsx(
          "block h-full w-full rounded-[1.5px] hover:brightness-90 focus-visible:z-10",
          ending ? ENDINGS[ending] : isWaiting ? STRIPES : kind.color,
          bar.isOpen && "rounded-r-none border-r-2 border-running",
        )}
      />
    </li>
  );
});
