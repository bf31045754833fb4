import clsx from "clsx";
import { memo } from "react";
import type { Span } from "@/api";
import { type Bar, barName, type Ending, isWait } from "@/views/timeChart";
import { duration } from "@/views/time";

const KINDS: Record<Span["kind"], { word: string; colour: string }> = {
  step: { word: "step", colour: "bg-quiet-back text-quiet" },
  tool: { word: "tool", colour: "bg-waiting-back text-waiting" },
  run: { word: "sub-run", colour: "bg-nested-back text-nested" },
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
  isEntry: boolean;
  onLook: (seq: number) => void;
  onEnter: (seq: number) => void;
  onGo: (seq: number) => void;
}

/** A bar of the chart. Memoized: a chart may have more than a thousand. */
export const BarButton = memo(function BarButton({ bar, ending, top, isEntry, onLook, onEnter, onGo }: Props) {
  const { span, from, to } = bar;
  const kind = KINDS[span.kind];
  const waits = isWait(span);
  const name = barName(bar);
  const said = `${name}, ${waits ? "waiting" : kind.word}, ${bar.open ? "open for " : ""}${duration(bar.ms)}${bar.count > 1 ? " together" : ""}${ending ? `, ${ending}` : ""}`;
  return (
    <li
      className="@container absolute h-4 min-w-0.5"
      style={{ top, left: `min(${from * 100}%, calc(100% - 2px))`, width: `${(to - from) * 100}%` }}
    >
      <button
        type="button"
        data-bar={span.seq}
        data-waits={waits || undefined}
        aria-label={said}
        title={said}
        tabIndex={isEntry ? 0 : -1}
        onPointerEnter={() => onLook(span.seq)}
        onFocus={() => {
          onLook(span.seq);
          onEnter(span.seq);
        }}
        onClick={() => onGo(span.seq)}
        className={clsx(
          "block h-full w-full overflow-hidden text-left text-[10px]/4 whitespace-nowrap ring-1 ring-current/45 ring-inset hover:ring-current focus-visible:z-10",
          ending ? ENDINGS[ending] : waits ? STRIPES : kind.colour,
          bar.open ? "rounded-l-sm border-r-2 border-running" : "rounded-sm",
        )}
      >
        {/* Narrow bars have no room for a name. */}
        <span className="hidden px-1 @min-[2.25rem]:inline">{name}</span>
      </button>
    </li>
  );
});
