/** Keyboard shortcuts of the transcript. */
import type { RefObject } from "react";
import { pageOf, type RunDetail, type RunLog } from "@/api";
import { useKeys } from "@/shortcuts";
import { toClipboard } from "@/components/ui/CopyButton";
import { linkTo } from "@/address";
import { isFolding } from "@/views/transcriptRows";
import { rowsOf } from "@/views/transcript";
import type { Choice } from "./useSelectedRow";
import type { UsedFolds } from "./useFolds";
import type { Viewport } from "./viewport";

interface Keyed {
  run: RunDetail;
  choice: Choice;
  folds: UsedFolds;
  log: RunLog;
  bare: boolean;
  viewport: Viewport;
  follow: (wanted: boolean) => void;
  setAll: (open: boolean) => void;
  isLive: boolean;
  field: RefObject<HTMLInputElement | null>;
  /** Show a short message. */
  say: (words: string) => void;
}

export function useTranscriptKeys({
  run,
  choice,
  folds,
  log,
  bare,
  viewport,
  follow,
  setAll,
  isLive,
  field,
  say,
}: Keyed): void {
  const toggle = () => {
    const page = choice.chosen === null ? undefined : log.page(pageOf(choice.chosen));
    const row = page && rowsOf(page, bare).get(choice.chosen ?? 0);
    if (!row || !isFolding(row)) return;
    viewport.keep(row.seq);
    folds.setOpen(row.seq, !folds.isOpen(row));
  };
  useKeys("detail", {
    j: () => choice.move(1),
    k: () => choice.move(-1),
    gg: choice.toStart,
    G: choice.toEnd,
    Enter: toggle,
    "/": () => field.current?.select(),
    f: () => isLive && follow(!viewport.atEnd),
    e: () => setAll(!folds.all),
    c: () =>
      void toClipboard(linkTo(run.id, choice.chosen ?? undefined)).then((done) =>
        say(done ? "Link copied" : "Cannot copy here"),
      ),
  });
}
