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
 * At the top of the list, new runs push the others down; further down, the rows in sight do not move. `list` identifies
 * the list: another list starts at its top; null while the list is loading. The returned function must be called on
 * each scroll.
 */
export function useAnchor(
  virtualizer: Virtualizer<HTMLDivElement, Element>,
  scrollerRef: RefObject<HTMLDivElement | null>,
  rows: readonly Row[],
  list: string | null,
): () => void {
  const anchors = useRef<readonly Anchor[]>([]);
  const listBefore = useRef(list);
  const isShown = (virtualizer.scrollRect?.height ?? 0) > 0;
  const remember = useCallback(() => {
    // A narrow screen hides the list while a run is shown; keep the anchors until the list is back.
    if (!scrollerRef.current?.clientHeight) return;
    const top = scrollerRef.current.scrollTop;
    const inSight = virtualizer.getVirtualItems().filter((item) => item.end > top);
    anchors.current = top > 0 ? inSight.map((item) => ({ key: String(item.key), px: item.start - top })) : [];
  }, [virtualizer, scrollerRef]);
  useLayoutEffect(() => {
    const element = scrollerRef.current;
    if (!element || list === null || !isShown) return;
    if (listBefore.current !== list) {
      listBefore.current = list;
      element.scrollTop = 0;
    } else {
      const start = startOf(virtualizer, rows, anchors.current);
      if (start !== null && Math.abs(start - element.scrollTop) >= 1) element.scrollTop = start;
    }
    remember();
  }, [virtualizer, scrollerRef, rows, list, isShown, remember]);
  return remember;
}

/** Return the scroll position that puts the first remaining anchor back to its place. */
function startOf(
  virtualizer: Virtualizer<HTMLDivElement, Element>,
  rows: readonly Row[],
  anchors: readonly Anchor[],
): number | null {
  for (const { key, px } of anchors) {
    const item = virtualizer.measurementsCache[indexOf(rows, key)];
    if (item) return item.start - px;
  }
  return null;
}
