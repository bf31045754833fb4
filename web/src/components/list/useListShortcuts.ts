import type { RefObject } from "react";
import { enterZone, useKeys } from "@/shortcuts";
import type { Choice } from "@/components/list/useSelectedRun";
import { indexOf, neighbour, type Row } from "@/views/runRows";

type Box = RefObject<HTMLElement | null>;

interface Keyed {
  rows: readonly Row[];
  choice: Choice;
  box: Box;
  /** Expand or collapse a run; null where the list is no tree. */
  onToggle: ((runId: string) => void) | null;
  /** Select the last run; null where all runs are loaded. */
  toLast: (() => void) | null;
}

/** Keyboard shortcuts of the list. */
export function useListKeys({ rows, choice: { chosen, move }, box, onToggle, toLast }: Keyed): void {
  const from = (index: number, step: 1 | -1) => {
    const row = neighbour(rows, index, step);
    if (row) move(row.key);
  };
  const step = (by: 1 | -1) => () => {
    const index = indexOf(rows, chosen);
    const first = index < 0 ? firstInSight(box.current) : undefined;
    if (first !== undefined) move(first);
    else from(index, by);
  };
  const turn = (open: boolean) => {
    const row = rows[indexOf(rows, chosen)];
    if (row?.kind === "run" && row.run.children > 0 && row.opened !== open) onToggle?.(row.key);
  };
  useKeys("list", {
    j: step(1),
    ArrowDown: step(1),
    k: step(-1),
    ArrowUp: step(-1),
    gg: () => from(-1, 1),
    G: toLast ?? (() => from(rows.length, -1)),
    Enter: () => {
      if (chosen !== undefined) enterZone("detail");
    },
    ...(onToggle && { ArrowRight: () => turn(true), ArrowLeft: () => turn(false) }),
  });
}

/** Return the first card in sight: without a selection, keys start there. */
function firstInSight(box: HTMLElement | null): string | undefined {
  const top = box?.getBoundingClientRect().top ?? 0;
  const cards = [...(box?.querySelectorAll<HTMLElement>("[data-run]") ?? [])];
  return cards.find((card) => card.getBoundingClientRect().top >= top)?.dataset.run;
}
