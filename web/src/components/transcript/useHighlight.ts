/** Highlight search hits in the rendered rows, without changing the DOM. */
import { type RefObject, useEffect } from "react";

const NAME = "found";
const MAX_RANGES = 500;

/** Runs after every render, since rows come and go while the user scrolls. */
export function useHighlight(listRef: RefObject<HTMLElement | null>, text: string): void {
  useEffect(() => {
    if (!("highlights" in CSS)) return;
    const list = listRef.current;
    const ranges = list && text ? rangesOf(list, text.toLowerCase()) : [];
    if (ranges.length) CSS.highlights.set(NAME, new Highlight(...ranges));
    else CSS.highlights.delete(NAME);
  });
  useEffect(
    () => () => {
      if ("highlights" in CSS) CSS.highlights.delete(NAME);
    },
    [],
  );
}

function rangesOf(list: HTMLElement, searchText: string): Range[] {
  const ranges: Range[] = [];
  const texts = document.createTreeWalker(list, NodeFilter.SHOW_TEXT);
  while (texts.nextNode() && ranges.length < MAX_RANGES) {
    const node = texts.currentNode;
    const text = node.nodeValue?.toLowerCase() ?? "";
    for (
      let at = text.indexOf(searchText);
      at >= 0 && ranges.length < MAX_RANGES;
      at = text.indexOf(searchText, at + searchText.length)
    ) {
      // The lower-case form of a character may have another length.
      if (at + searchText.length > (node.nodeValue?.length ?? 0)) break;
      const range = document.createRange();
      range.setStart(node, at);
      range.setEnd(node, at + searchText.length);
      ranges.push(range);
    }
  }
  return ranges;
}
