/** What somebody reads in the list stays where it is, whatever comes or goes above it. */
import type { Virtualizer } from "@tanstack/react-virtual";
import { type RefObject, useCallback, useLayoutEffect, useRef } from "react";
import { indexOf, type Row } from "@/views/tree";

interface Anchor {
  readonly key: string;
  /** From the upper edge of what is in sight. */
  readonly px: number;
}

/**
 * Who is at the top sees new runs come; who is further down is not moved by them. `list` names what the rows are of:
 * another list begins at its top; null while that is not settled. The returned function is to be told of each scroll.
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
    // On a narrow screen the list gives way to a run; when it is back, it is to be as it was.
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

/** Where to scroll to for the first row that was in sight, and is still there, to be where it was. */
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
