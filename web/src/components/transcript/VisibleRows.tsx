import type { ReactNode } from "react";
import { PAGE_EVENTS, pageOf, type RunLog } from "@/api";
import type { Row } from "@/views/rowTypes";
import { rowsOf } from "@/views/transcriptRows";
import type { Folds } from "./useFolds";
import { RowView } from "./Row";
import type { Viewport } from "./viewport";

interface Props {
  viewport: Viewport;
  log: RunLog;
  folds: Folds;
  selectedSeq: number | null;
}

/** The rows in sight; a placeholder of the estimated height stands for rows that are not loaded. */
export function VisibleRows({ viewport, log, folds, selectedSeq }: Props) {
  const { from, to } = viewport.range;
  const elements: ReactNode[] = [];
  for (let number = pageOf(from); number <= pageOf(Math.max(1, to)) && to > 0; number++) {
    const [first, last] = [Math.max(from, number * PAGE_EVENTS + 1), Math.min(to, (number + 1) * PAGE_EVENTS)];
    const page = log.page(number);
    const loadedSeq = page?.events.at(-1)?.seq ?? 0;
    if (page) {
      for (const row of rowsOf(page, viewport.isSingleStep).values()) {
        if (row.seq < first || row.seq > last) continue;
        elements.push(
          <RowView
            key={row.seq}
            row={row}
            open={folds.isOpen(row)}
            openInside={openInside(row, folds)}
            isSelected={row.seq === selectedSeq}
          />,
        );
      }
    }
    if (loadedSeq < last)
      elements.push(
        <Gap
          key={`gap ${number}`}
          height={viewport.heights.top(last + 1) - viewport.heights.top(Math.max(first, loadedSeq + 1))}
        />,
      );
  }
  return elements;
}

/** List the calls inside of a row that are expanded. */
export const openInside = (row: Row, folds: Folds): string =>
  row.kind === "reads"
    ? row.calls
        .filter((call) => folds.isOpenInside(call))
        .map((call) => call.seq)
        .join(" ")
    : "";

/** Placeholder for rows that are loading. */
function Gap({ height }: { height: number }) {
  return (
    <li aria-hidden style={{ height }} className="px-3 py-1">
      <div className="h-full rounded bg-[repeating-linear-gradient(to_bottom,var(--bg-hover)_0_16px,transparent_16px_28px)] opacity-60" />
    </li>
  );
}
