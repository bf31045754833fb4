import { useEffect, useLayoutEffect, useRef } from "react";
import type { RunLog } from "@/api";
import type { ViewSync } from "@/components/detail/viewSync";
import { useFocusFallback } from "@/components/ui/useFocusFallback";
import { VisibleRows } from "./VisibleRows";
import type { Folds } from "./useFolds";
import { useHighlight } from "./useHighlight";
import { StreamingRows } from "./StreamingRows";
import type { Viewport } from "./viewport";

interface Props {
  viewport: Viewport;
  log: RunLog;
  folds: Folds;
  selectedSeq: number | null;
  searchText: string;
  sync: ViewSync;
}

/**
 * The scroll container: as high as the whole transcript, with the rows in sight at their place, and streaming text
 * below.
 */
export function Scroller({ viewport, log, folds, selectedSeq, searchText, sync }: Props) {
  const scrollerRef = useRef<HTMLDivElement>(null);
  const sizerRef = useRef<HTMLDivElement>(null);
  const listRef = useRef<HTMLOListElement>(null);
  useLayoutEffect(() => {
    if (scrollerRef.current && sizerRef.current && listRef.current)
      return viewport.attach(scrollerRef.current, sizerRef.current, listRef.current);
    return undefined;
  }, [viewport]);
  useLayoutEffect(() => viewport.layout());
  useEffect(() => (listRef.current ? sync.addPane(listRef.current) : undefined), [sync]);
  useHighlight(listRef, searchText);
  useFocusFallback(scrollerRef);
  return (
    <div
      ref={scrollerRef}
      tabIndex={0}
      role="group"
      aria-label="Transcript rows"
      className="thin-scroll relative min-h-0 flex-1 overflow-x-hidden overflow-y-auto pt-1 [overflow-anchor:none] -outline-offset-2"
    >
      {log.lastSeq === 0 && <p className="p-4 text-text-3">No events yet.</p>}
      <div ref={sizerRef} className="relative">
        <ol ref={listRef} className="absolute inset-x-0">
          <VisibleRows viewport={viewport} log={log} folds={folds} selectedSeq={selectedSeq} />
        </ol>
      </div>
      <div data-tail>
        <StreamingRows log={log} />
        <div className="h-2" />
      </div>
    </div>
  );
}
