import { useLayoutEffect, useRef } from "react";
import type { RunLog } from "@/api";
import { Drawn } from "./VisibleRows";
import type { UsedFolds } from "./useFolds";
import { useHighlight } from "./useHighlight";
import { TypingRows } from "./StreamingRows";
import type { Viewport } from "./viewport";

interface Props {
  viewport: Viewport;
  log: RunLog;
  folds: UsedFolds;
  chosen: number | null;
  words: string;
}

/**
 * The scroll container: as high as the whole transcript, with the rows in sight at their place, and streaming text
 * below.
 */
export function Scroller({ viewport, log, folds, chosen, words }: Props) {
  const scroller = useRef<HTMLDivElement>(null);
  const sizer = useRef<HTMLDivElement>(null);
  const list = useRef<HTMLOListElement>(null);
  useLayoutEffect(() => {
    if (scroller.current && sizer.current && list.current)
      return viewport.attach(scroller.current, sizer.current, list.current);
    return undefined;
  }, [viewport]);
  useLayoutEffect(() => viewport.layOut());
  useHighlight(list, words);
  return (
    <div
      ref={scroller}
      tabIndex={0}
      role="group"
      aria-label="Transcript rows"
      className="relative min-h-0 flex-1 overflow-x-hidden overflow-y-auto [overflow-anchor:none]"
    >
      {log.lastSeq === 0 && <p className="p-4 text-ink-faint">No events yet.</p>}
      <div ref={sizer} className="relative">
        <ol ref={list} className="absolute inset-x-0">
          <Drawn viewport={viewport} log={log} folds={folds} chosen={chosen} />
        </ol>
      </div>
      <div>
        <TypingRows log={log} />
        <div className="h-2" />
      </div>
    </div>
  );
}
