import { defaultRangeExtractor, useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import type { RunLog } from "@/api";
import type { ViewSync } from "@/components/detail/viewSync";
import { indexOfEvent, longestMs, type TimelineItem } from "@/views/timelineRows";
import { TimelineLine } from "./TimelineLine";

const ROW_PX = 24;
/** Closer to the end than this counts as at the end. */
const NEAR_END_PX = 32;
/** How many rows before the last one the next rows are fetched. */
const FETCH_AHEAD_ROWS = 200;

interface Props {
  items: readonly TimelineItem[];
  log: RunLog;
  selectedSeq: number | undefined;
  sync: ViewSync;
  /** Whether rows are still added, so that the view starts at the end. */
  isGrowing: boolean;
  onEvent: (seq: number) => void;
  /** Whether there are later rows. */
  hasMore: boolean;
  /** Fetch later rows; null if there are none, or while they are loading. */
  fetchMore: (() => void) | null;
}

/** The virtualized lines of a timeline. They follow the transcript, unless the pointer is on them. */
export function TimelineLines({ items, log, selectedSeq, sync, isGrowing, onEvent, hasMore, fetchMore }: Props) {
  const scrollerRef = useRef<HTMLDivElement>(null);
  const listRef = useRef<HTMLOListElement>(null);
  // Keep following after the run has ended: its last rows are still to come.
  const [followsEnd] = useState(isGrowing);
  const isAtEndRef = useRef(followsEnd && selectedSeq === undefined);
  const visible = useSyncExternalStore(sync.subscribe, sync.getVisible);
  const longest = useMemo(() => longestMs(items), [items]);
  const selectedIndex = useMemo(
    () => (selectedSeq === undefined ? -1 : indexOfEvent(items, selectedSeq)),
    [items, selectedSeq],
  );
  const [focusedIndex, setFocusedIndex] = useState<number | null>(null);
  const tabStop = focusedIndex ?? Math.max(0, selectedIndex);
  const list = useVirtualizer({
    count: items.length,
    getScrollElement: () => scrollerRef.current,
    estimateSize: () => ROW_PX,
    getItemKey: (index) => items[index]?.key ?? index,
    overscan: 12,
    // The tab stop is always rendered, also out of sight.
    rangeExtractor: (range) => [...new Set([...defaultRangeExtractor(range), Math.min(tabStop, items.length - 1)])],
  });
  const rendered = list.getVirtualItems();
  useEffect(() => (listRef.current ? sync.addPane(listRef.current) : undefined), [sync]);

  /** The row that was scrolled into sight; undefined once the reader scrolls here or in the transcript. */
  const scrolledToRef = useRef<number>(undefined);
  const wasSelectionVisibleRef = useRef(false);
  const onReaderMove = () => {
    scrolledToRef.current = undefined;
  };

  useEffect(() => {
    const element = scrollerRef.current;
    if (!element) return;
    const restorePosition = () => {
      if (followsEnd && isAtEndRef.current) list.scrollToIndex(items.length - 1, { align: "end" });
      else if (scrolledToRef.current !== undefined) list.scrollToIndex(scrolledToRef.current, { align: "auto" });
    };
    restorePosition();
    // The chart above grows when it is loaded, and takes height from the rows.
    const observer = new ResizeObserver(restorePosition);
    observer.observe(element);
    return () => observer.disconnect();
  }, [list, items.length, followsEnd]);

  // Scroll to the selected event once it is loaded, and only once: later rows must not scroll the reader back.
  const pendingRef = useRef(selectedSeq);
  const previousRef = useRef(selectedSeq);
  const isLoaded = selectedSeq !== undefined && (!hasMore || (items.at(-1)?.lastSeq ?? 0) >= selectedSeq);
  useEffect(() => {
    if (previousRef.current !== selectedSeq) pendingRef.current = selectedSeq;
    previousRef.current = selectedSeq;
    if (pendingRef.current === undefined || selectedIndex < 0 || !isLoaded) return;
    pendingRef.current = undefined;
    scrolledToRef.current = selectedIndex;
    wasSelectionVisibleRef.current = false;
    list.scrollToIndex(selectedIndex, { align: "auto" });
  }, [list, selectedSeq, selectedIndex, isLoaded]);

  // Show what the transcript shows, once the reader scrolls it.
  const previousVisibleRef = useRef(visible);
  useEffect(() => {
    const previous = previousVisibleRef.current;
    previousVisibleRef.current = visible;
    const { first, last, isAtEnd } = visible;
    const selected = items[scrolledToRef.current ?? -1];
    if (selected) {
      const isVisible = selected.seq <= last && selected.lastSeq >= first;
      // The transcript is still on its way to the event.
      if (isVisible || !wasSelectionVisibleRef.current) {
        wasSelectionVisibleRef.current = isVisible;
        return;
      }
      scrolledToRef.current = undefined;
    }
    if (previous.first === 0 || (previous.first === first && previous.isAtEnd === isAtEnd)) return;
    if (isAtEnd && isAtEndRef.current) return;
    if (scrollerRef.current?.matches(":hover, :has(:focus-visible)")) return;
    isAtEndRef.current = false;
    const index = isAtEnd ? items.length - 1 : indexOfEvent(items, first);
    if (index >= 0) list.scrollToIndex(index, { align: "auto" });
  }, [visible, items, list]);

  const last = rendered.at(-1)?.index ?? 0;
  useEffect(() => {
    if (fetchMore && (last >= items.length - FETCH_AHEAD_ROWS || (pendingRef.current !== undefined && !isLoaded)))
      fetchMore();
  }, [fetchMore, last, items.length, isLoaded]);

  const moveFocus = (key: string, target: HTMLElement) => {
    const next = indexAfterKey(key, tabStop, items.length);
    if (next < 0) return false;
    setFocusedIndex(next);
    list.scrollToIndex(next, { align: "auto" });
    setTimeout(() => target.querySelector<HTMLElement>('button[tabindex="0"]')?.focus());
    return true;
  };
  return (
    <div
      ref={scrollerRef}
      onWheel={onReaderMove}
      onPointerDown={onReaderMove}
      onKeyDown={(event) => {
        onReaderMove();
        if (moveFocus(event.key, event.currentTarget)) event.preventDefault();
      }}
      // Only the reader moves the view away from the end; rows added below do not.
      onScroll={({ currentTarget: element }) => {
        isAtEndRef.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_END_PX;
      }}
      className="thin-scroll min-h-0 flex-1 overflow-y-auto overscroll-contain py-1"
    >
      <ol ref={listRef} aria-label="Events" className="relative" style={{ height: list.getTotalSize() }}>
        {rendered.map(({ index, key, start }) => {
          const item = items[index];
          return (
            item && (
              <li
                key={key}
                ref={list.measureElement}
                data-index={index}
                data-seq={item.kind === "turn" ? undefined : item.seq}
                className="absolute inset-x-0 top-0"
                style={{ transform: `translateY(${start}px)` }}
              >
                <TimelineLine
                  item={item}
                  log={log}
                  longestMs={longest}
                  isSelected={index === selectedIndex}
                  isInView={item.kind === "call" && item.seq >= visible.first && item.seq <= visible.last}
                  isTabStop={index === tabStop}
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

/** Return the index that an arrow key leads to; -1 for other keys. */
function indexAfterKey(key: string, index: number, count: number): number {
  if (key === "ArrowDown") return Math.min(index + 1, count - 1);
  if (key === "ArrowUp") return Math.max(index - 1, 0);
  if (key === "Home") return 0;
  return key === "End" ? count - 1 : -1;
}
