import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import type { TimelineRow } from "@/api";
import { lineOf, rowTelling } from "@/views/timelineRows";
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
  /** Told when the row of the chosen event was brought into sight. */
  onShown: () => void;
  /** Whether there are later rows than these. */
  more: boolean;
  /** Asks for them; null where there are none, or they are on their way. */
  onEnd: (() => void) | null;
}

/** The rows of a timeline, of which only those in sight are drawn. */
export function Rows({ rows, cancelled, chosen, follows, onEvent, onShown, more, onEnd }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  // A run that ends while somebody reads has its last rows yet to come.
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

  /** The row that was brought into sight, until the reader moves. */
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
    // The chart above grows when it is loaded, and takes its room from the rows.
    const watch = new ResizeObserver(settle);
    watch.observe(at);
    return () => watch.disconnect();
  }, [list, rows.length, tails]);

  const told = useMemo(() => (chosen === undefined ? -1 : rowTelling(rows, chosen)), [rows, chosen]);
  // To what is chosen, once it is loaded: rows that come later must not take the reader back to it.
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
