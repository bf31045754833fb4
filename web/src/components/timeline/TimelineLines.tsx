import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import type { TimelineRow } from "@/api";
import { lineOf, rowTelling } from "@/views/timelineRows";
import { Row } from "./TimelineLine";

const ROW_PX = 24;
/** The rows never get less height than this. */
const LEAST_PX = 96;
/** Closer to the end than this counts as at the end. */
const END_PX = 32;
/** How many rows before the last one the next rows are fetched. */
const AHEAD = 200;

interface Props {
  rows: readonly TimelineRow[];
  /** Why the run was cancelled; null where it was not. */
  cancelled: string | null;
  chosen: number | undefined;
  /** Whether rows are still added, so that the view starts at the end. */
  follows: boolean;
  onEvent: (seq: number) => void;
  /** Called when the row of the selected event was scrolled into sight. */
  onShown: () => void;
  /** Whether there are later rows. */
  more: boolean;
  /** Fetch later rows; null where there are none, or while they are loading. */
  onEnd: (() => void) | null;
}

/** The virtualized rows of a timeline. */
export function Rows({ rows, cancelled, chosen, follows, onEvent, onShown, more, onEnd }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  // Keep following after the run has ended: its last rows are still to come.
  const [tails] = useState(follows);
  const atEnd = useRef(tails && chosen === undefined);
  const list = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    getItemKey: (index) => rows[index]?.id ?? index,
    overscan: 12,
  });
  const shown = list.getVirtualItems();

  /** The row that was scrolled into sight; undefined once the reader scrolls. */
  const revealed = useRef<number>(undefined);
  const moved = () => {
    revealed.current = undefined;
  };

  useEffect(() => {
    const at = scroller.current;
    if (!at) return;
    const settle = () => {
      if (tails && atEnd.current) list.scrollToIndex(rows.length - 1, { align: "end" });
      else if (revealed.current !== undefined) list.scrollToIndex(revealed.current, { align: "auto" });
    };
    settle();
    // The chart above grows when it is loaded, and takes height from the rows.
    const watch = new ResizeObserver(settle);
    watch.observe(at);
    return () => watch.disconnect();
  }, [list, rows.length, tails]);

  const told = useMemo(() => (chosen === undefined ? -1 : rowTelling(rows, chosen)), [rows, chosen]);
  // Scroll to the selected event once it is loaded, and only once: later rows must not scroll the reader back.
  const toShow = useRef(chosen);
  const before = useRef(chosen);
  const isLoaded = chosen !== undefined && (!more || (rows.at(-1)?.seq ?? 0) >= chosen);
  useEffect(() => {
    if (before.current !== chosen) toShow.current = chosen;
    before.current = chosen;
    if (toShow.current === undefined || told < 0 || !isLoaded) return;
    toShow.current = undefined;
    revealed.current = told;
    list.scrollToIndex(told, { align: "auto" });
    scroller.current?.scrollIntoView({ block: "nearest" });
    onShown();
  }, [list, chosen, told, isLoaded, onShown]);

  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (onEnd && (last >= rows.length - AHEAD || (toShow.current !== undefined && !isLoaded))) onEnd();
  }, [onEnd, last, rows.length, isLoaded]);

  return (
    <div
      ref={scroller}
      onWheel={moved}
      onPointerDown={moved}
      onKeyDown={moved}
      // Only the reader moves the view away from the end; rows added below do not.
      onScroll={({ currentTarget: at }) => {
        atEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < END_PX;
      }}
      // The rows shrink in favor of the chart above, down to their minimum.
      className="flex-auto shrink-[1000] overflow-y-auto overscroll-contain pb-1"
      style={{ minHeight: Math.min(LEAST_PX, list.getTotalSize()) }}
    >
      <ol aria-label="Events" className="relative" style={{ height: list.getTotalSize() }}>
        {shown.map((item) => {
          const row = rows[item.index];
          return (
            row && (
              <li
                key={item.key}
                ref={list.measureElement}
                data-index={item.index}
                data-seq={row.seq}
                className="absolute inset-x-0 top-0"
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <Row
                  row={row}
                  cancelled={cancelled}
                  isChosen={item.index === told || (chosen !== undefined && lineOf(row).seq === chosen)}
                  onEvent={onEvent}
                />
              </li>
            )
          );
        })}
      </ol>
    </div>
  );
}
