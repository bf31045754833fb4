/** Keyboard shortcuts of the transcript. */
import type { RefObject } from "react";
import { pageOf, type RunDetail, type RunLog } from "@/api";
import { useShortcuts } from "@/shortcuts";
import { copyToClipboard } from "@/components/ui/CopyButton";
import { runUrl } from "@/useAddress";
import { isFoldable } from "@/views/rowTypes";
import { rowsOf } from "@/views/transcriptRows";
import type { RowSelection } from "./useSelectedRow";
import type { Folds } from "./useFolds";
import type { Viewport } from "./viewport";

interface TranscriptShortcuts {
  run: RunDetail;
  selection: RowSelection;
  folds: Folds;
  log: RunLog;
  isSingleStep: boolean;
  viewport: Viewport;
  follow: (isWanted: boolean) => void;
  setAll: (open: boolean) => void;
  isRunActive: boolean;
  fieldRef: RefObject<HTMLInputElement | null>;
  /** Show a short message. */
  showMessage: (text: string) => void;
}

export function useTranscriptShortcuts({
  run,
  selection,
  folds,
  log,
  isSingleStep,
  viewport,
  follow,
  setAll,
  isRunActive,
  fieldRef,
  showMessage,
}: TranscriptShortcuts): void {
  const toggle = () => {
    const page = selection.selectedSeq === null ? undefined : log.page(pageOf(selection.selectedSeq));
    const row = page && rowsOf(page, isSingleStep).get(selection.selectedSeq ?? 0);
    if (!row || !isFoldable(row)) return;
    viewport.anchorAt(row.seq);
    folds.setOpen(row.seq, !folds.isOpen(row));
  };
  useShortcuts("detail", {
    j: () => selection.move(1),
    k: () => selection.move(-1),
    gg: selection.toStart,
    G: selection.toEnd,
    Enter: toggle,
    "/": () => fieldRef.current?.select(),
    f: () => isRunActive && follow(!viewport.isAtEnd),
    e: () => setAll(!folds.expandAll),
    c: () =>
      void copyToClipboard(runUrl(run.id, selection.selectedSeq ?? undefined)).then((wasCopied) =>
        showMessage(wasCopied ? "Link copied" : "Could not copy"),
      ),
  });
}
