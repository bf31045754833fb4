import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState } from "react";
import type { TimelineRow } from "@/api";
import { lineOf, indexOfEvent } from "@/views/timelineRows";
import { TimelineLine } from "./TimelineLine";

const ROW_PX = 24;
/** The rows never get less height than this. */
const MIN_HEIGHT_PX = 96;
/** Closer to the end than this counts as at the end. */
const NEAR_END_PX = 32;
/** How many rows before the last one the next rows are fetched. */
const FETCH_AHEAD_ROWS = 200;

interface Props {
  rows: readonly TimelineRow[];
  /** Why the run was cancelled; null if it was not. */
  cancelReason: string | null;
  selectedSeq: number | undefined;
  /** Whether rows are still added, so that the view starts at the end. */
  isGrowing: boolean;
  onEvent: (seq: number) => void;
  /** Called when the row of the selected event was scrolled into sight. */
  onScrolled: () => void;
  /** Whether there are later rows. */
  hasMore: boolean;
  /** Fetch later rows; null if there are none, or while they are loading. */
  fetchMore: (() => void) | null;
}

/** The virtualized rows of a timeline. */
export function TimelineLines({
  rows,
  cancelReason,
  selectedSeq,
  isGrowing,
  onEvent,
  onScrolled,
  hasMore,
  fetchMore,
}: Props) {
  const scrollerRef = useRef<HTMLDivElement>(null);
  // Keep following after the run has ended: its last rows are still to come.
  const [followsEnd] = useState(isGrowing);
  const isAtEndRef = useRef(followsEnd && selectedSeq === undefined);
  const list = useVirtualizer({
    count: rows.length,
    getScrollElement: () => scrollerRef.current,
    estimateSize: () => ROW_PX,
    getItemKey: (index) => rows[index]?.id ?? index,
    overscan: 12,
  });
  const items = list.getVirtualItems();

  /** The row that was scrolled into sight; undefined once the reader scrolls. */
  const scrolledToRef = useRef<number>(undefined);
  const onReaderMove = () => {
    scrolledToRef.current = undefined;
  };

  useEffect(() => {
    const element = scrollerRef.current;
    if (!element) return;
    const restorePosition = () => {
      if (followsEnd && isAtEndRef.current) list.scrollToIndex(rows.length - 1, { align: "end" });
      else if (scrolledToRef.current !== undefined) list.scrollToIndex(scrolledToRef.current, { align: "auto" });
    };
    restorePosition();
    // The chart above grows when it is loaded, and takes height from the rows.
    const observer = new ResizeObserver(restorePosition);
    observer.observe(element);
    return () => observer.disconnect();
  }, [list, rows.length, followsEnd]);

  const selectedIndex = useMemo(
    () => (selectedSeq === undefined ? -1 : indexOfEvent(rows, selectedSeq)),
    [rows, selectedSeq],
  );
  // Scroll to the selected event once it is loaded, and only once: later rows must not scroll the reader back.
  const pendingRef = useRef(selectedSeq);
  const previousRef = useRef(selectedSeq);
  const isLoaded = selectedSeq !== undefined && (!hasMore || (rows.at(-1)?.seq ?? 0) >= selectedSeq);
  useEffect(() => {
    if (previousRef.current !== selectedSeq) pendingRef.current = selectedSeq;
    previousRef.current = selectedSeq;
    if (pendingRef.current === undefined || selectedIndex < 0 || !isLoaded) return;
    pendingRef.current = undefined;
    scrolledToRef.current = selectedIndex;
    list.scrollToIndex(selectedIndex, { align: "auto" });
    scrollerRef.current?.scrollIntoView({ block: "nearest" });
    onScrolled();
  }, [list, selectedSeq, selectedIndex, isLoaded, onScrolled]);

  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (fetchMore && (last >= rows.length - FETCH_AHEAD_ROWS || (pendingRef.current !== undefined && !isLoaded)))
      fetchMore();
  }, [fetchMore, last, rows.length, isLoaded]);

  return (
    <div
      ref={scrollerRef}
      onWheel={onReaderMove}
      onPointerDown={onReaderMove}
      onKeyDown={onReaderMove}
      // Only the reader moves the view away from the end; rows added below do not.
      onScroll={({ currentTarget: element }) => {
        isAtEndRef.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
      }}
      // The rows shrink in favor of the chart above, down to their minimum.
      className="flex-auto shrink-[1000] overflow-y-auto overscroll-contain pb-1"
      style={{ minHeight: Math.min(MIN_HEIGHT_PX, list.getTotalSize()) }}
    >
      <ol aria-label="Events" className="relative" style={{ height: list.getTotalSize() }}>
        {items.map((item) => {
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
                <TimelineLine
                  row={row}
                  cancelled={cancelReason}
                  isSelected={
                    item.index === selectedIndex || (selectedSeq !== undefined && lineOf(row).seq === selectedSeq)
                  }
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
