import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import type { TimelineRow } from "@/api";
import { lineOf } from "@/views/timelineRows";
import { Row } from "./Row";

const ROW_PX = 24;
/** Of the rows so much is always in sight. */
const LEAST_PX = 96;
/** So close to the end counts as there. */
const END_PX = 32;
/** So many rows before the last one, the next ones are asked for. */
const AHEAD = 200;

interface Props {
  rows: readonly TimelineRow[];
  /** Why the run was cancelled; null where it was not. */
  cancelled: string | null;
  chosen: number | undefined;
  /** Whether rows are still being added, and the end is where to be. */
  follows: boolean;
  onEvent: (seq: number) => void;
  /** Asks for more rows; null where there are none, or they are on their way. */
  onEnd: (() => void) | null;
}

/** The rows of a timeline, of which only those in sight are drawn. */
export function Rows({ rows, cancelled, chosen, follows, onEvent, onEnd }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  // A run that ends while somebody reads has its last rows yet to come.
  const [tails] = useState(follows);
  const atEnd = useRef(tails);
  const list = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_PX,
    getItemKey: (index) => rows[index]?.id ?? index,
    overscan: 12,
  });
  const shown = list.getVirtualItems();

  useEffect(() => {
    const at = scroller.current;
    if (!tails || !at) return;
    const toEnd = () => atEnd.current && list.scrollToIndex(rows.length - 1, { align: "end" });
    toEnd();
    // The chart above grows, too.
    const watch = new ResizeObserver(toEnd);
    watch.observe(at);
    return () => watch.disconnect();
  }, [list, rows.length, tails]);

  // To what is chosen, once: rows that come later must not take the reader back to it.
  const known = useRef(rows);
  useEffect(() => {
    known.current = rows;
  });
  useEffect(() => {
    const index = chosen === undefined ? -1 : known.current.findIndex((row) => lineOf(row).seq === chosen);
    if (index >= 0) list.scrollToIndex(index, { align: "auto" });
  }, [list, chosen]);

  const last = shown.at(-1)?.index ?? 0;
  useEffect(() => {
    if (onEnd && last >= rows.length - AHEAD) onEnd();
  }, [onEnd, last, rows.length]);

  return (
    <div
      ref={scroller}
      // Only a reader moves it away from the end; what is added below does not.
      onScroll={({ currentTarget: at }) => {
        atEnd.current = at.scrollHeight - at.scrollTop - at.clientHeight < END_PX;
      }}
      // They give way to the chart above, but for a few; no room is taken that they do not need.
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
                <Row row={row} cancelled={cancelled} chosen={chosen} onEvent={onEvent} />
              </li>
            )
          );
        })}
      </ol>
    </div>
  );
}
