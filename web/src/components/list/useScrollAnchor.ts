/** Scroll anchoring: the rows in sight stay where they are when rows above them come or go. */
import type { Virtualizer } from "@tanstack/react-virtual";
import { type RefObject, useCallback, useLayoutEffect, useRef } from "react";
import { indexOf, type Row } from "@/views/runRows";

interface Anchor {
  readonly key: string;
  /** Distance from the upper edge of the list. */
  readonly px: number;
}

/**
 * At the top of the list, new runs push the others down; further down, the rows in sight do not move. `listKey` identifies
 * the list: another list starts at its top; null while the list is loading. The returned function must be called on
 * each scroll.
 */
export function useScrollAnchor(
  virtualizer: Virtualizer<HTMLDivElement, Element>,
  scrollerRef: RefObject<HTMLDivElement | null>,
  rows: readonly Row[],
  listKey: string | null,
): () => void {
  const anchorsRef = useRef<readonly Anchor[]>([]);
  const previousListRef = useRef(listKey);
  const isShown = (virtualizer.scrollRect?.height ?? 0) > 0;
  const remember = useCallback(() => {
    // A narrow screen hides the list while a run is shown; keep the anchors until the list is back.
    if (!scrollerRef.current?.clientHeight) return;
    const top = scrollerRef.current.scrollTop;
    const inSight = virtualizer.getVirtualItems().filter((item) => item.end > top);
    anchorsRef.current = top > 0 ? inSight.map((item) => ({ key: String(item.key), px: item.start - top })) : [];
  }, [virtualizer, scrollerRef]);
  useLayoutEffect(() => {
    const element = scrollerRef.current;
    if (!element || listKey === null || !isShown) return;
    if (previousListRef.current !== listKey) {
      previousListRef.current = listKey;
      element.scrollTop = 0;
    } else {
      const start = anchoredScrollTop(virtualizer, rows, anchorsRef.current);
      if (start !== null && Math.abs(start - element.scrollTop) >= 1) element.scrollTop = start;
    }
    remember();
  }, [virtualizer, scrollerRef, rows, listKey, isShown, remember]);
  return remember;
}

/** Return the scroll position that puts the first remaining anchor back to its place. */
function anchoredScrollTop(
  virtualizer: Virtualizer<HTMLDivElement, Element>,
  rows: readonly Row[],
  anchorsRef: readonly Anchor[],
): number | null {
  for (const { key, px } of anchorsRef) {
    const item = virtualizer.measurementsCache[indexOf(rows, key)];
    if (item) return item.start - px;
  }
  return null;
}
