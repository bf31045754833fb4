import clsx from "clsx";
import { memo } from "react";
import type { Span } from "@/api";
import { type Bar, barName, type Ending, isWait } from "@/views/timeChart";
import { formatDuration } from "@/views/time";

const KINDS: Record<Span["kind"], { word: string; color: string }> = {
  step: { word: "step", color: "bg-quiet-back text-quiet" },
  tool: { word: "tool", color: "bg-waiting-back text-waiting" },
  run: { word: "sub-run", color: "bg-nested-back text-nested" },
};
const ENDINGS: Record<Ending, string> = { failed: "bg-failed-back text-failed", cancelled: "bg-quiet-back text-quiet" };
/** Stripes for a bar that only waits. */
export const STRIPES =
  "bg-[repeating-linear-gradient(135deg,var(--waiting-back)_0_4px,var(--app)_4px_8px)] text-waiting";

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
      className="@container absolute h-4 min-w-0.5"
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
          "block h-full w-full overflow-hidden text-left text-[10px]/4 whitespace-nowrap ring-1 ring-current/45 ring-inset hover:ring-current focus-visible:z-10",
          ending ? ENDINGS[ending] : isWaiting ? STRIPES : kind.color,
          bar.isOpen ? "rounded-l-sm border-r-2 border-running" : "rounded-sm",
        )}
      >
        {/* Narrow bars have no room for a name. */}
        <span className="hidden px-1 @min-[2.25rem]:inline">{name}</span>
      </button>
    </li>
  );
});
