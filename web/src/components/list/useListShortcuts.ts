import type { RefObject } from "react";
import { enterZone, useShortcuts } from "@/shortcuts";
import type { RunSelection } from "@/components/list/useSelectedRun";
import { indexOf, nextRun, type Row } from "@/views/runRows";

type Box = RefObject<HTMLElement | null>;

interface ListShortcuts {
  rows: readonly Row[];
  selection: RunSelection;
  boxRef: Box;
  /** Expand or collapse a run; null if the list is no tree. */
  onToggle: ((runId: string) => void) | null;
  /** Select the last run; null if all runs are loaded. */
  selectLast: (() => void) | null;
}

/** Keyboard shortcuts of the list. */
export function useListShortcuts({
  rows,
  selection: { selectedId, move },
  boxRef,
  onToggle,
  selectLast,
}: ListShortcuts): void {
  const moveFrom = (index: number, step: 1 | -1) => {
    const row = nextRun(rows, index, step);
    if (row) move(row.key);
  };
  const step = (direction: 1 | -1) => {
    const index = indexOf(rows, selectedId);
    const first = index < 0 ? firstInSight(boxRef.current) : undefined;
    if (first !== undefined) move(first);
    else moveFrom(index, direction);
  };
  const setExpanded = (isExpanded: boolean) => {
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement.dataset.run : undefined;
    const row = rows[indexOf(rows, focused ?? selectedId)];
    if (row?.kind === "run" && row.run.children > 0 && row.isExpanded !== isExpanded) onToggle?.(row.key);
  };
  useShortcuts("list", {
    j: () => step(1),
    ArrowDown: () => step(1),
    k: () => step(-1),
    ArrowUp: () => step(-1),
    gg: () => moveFrom(-1, 1),
    G: selectLast ?? (() => moveFrom(rows.length, -1)),
    Enter: () => {
      if (selectedId !== undefined) enterZone("detail");
    },
    ...(onToggle && { ArrowRight: () => setExpanded(true), ArrowLeft: () => setExpanded(false) }),
  });
}

/** Return the first card in sight: without a selection, keys start there. */
function firstInSight(box: HTMLElement | null): string | undefined {
  const top = box?.getBoundingClientRect().top ?? 0;
  const cards = [...(box?.querySelectorAll<HTMLElement>("[data-run]") ?? [])];
  return cards.find((card) => card.getBoundingClientRect().top >= top)?.dataset.run;
}
