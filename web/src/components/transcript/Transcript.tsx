import { type RefObject, useCallback, useEffect, useMemo, useReducer, useRef, useState } from "react";
import { createPortal } from "react-dom";
import { PAGE_EVENTS, pageOf, type RunDetail, type RunLog, useLog } from "@/api";
import { usePublishChosen } from "@/components/again/chosenEvent";
import type { ViewSync } from "@/components/detail/viewSync";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { cancelReason, isActive } from "@/views/detail";
import { lastSeqOf } from "@/views/rowTypes";
import { rowsOf } from "@/views/transcriptRows";
import { type RowSelection, useSelectedRow } from "./useSelectedRow";
import { type TranscriptSearch, useTranscriptSearch } from "./useTranscriptSearch";
import { HitLine } from "./SearchBar";
import { canExpandAny, type Folds, useFolds } from "./useFolds";
import { TranscriptContext } from "./transcriptContext";
import { RowStates } from "./rowState";
import { Scroller } from "./Scroller";
import { SearchTextContext } from "./Text";
import { useTranscriptShortcuts } from "./useTranscriptShortcuts";
import { Toolbar } from "./Toolbar";
import "./transcript.css";
import { Viewport } from "./viewport";
import { useLoadRange } from "./useLoadRange";
import { isSingleStep } from "./labels";

interface Props {
  run: RunDetail;
  /** The event to go to. */
  target: number | undefined;
  /** How often the same target was requested again: each time the view goes there once more. */
  repeats: number;
  /** The search query that found the run: the transcript opens at its first hit. */
  searchQuery: string | undefined;
  /** Called with the event that the user selected. */
  onEvent: (seq: number | undefined) => void;
  /** Fork the run from an event; undefined if the user may not. */
  onFork: ((seq: number) => void) | undefined;
  /** The element that the tools of the transcript are rendered into. */
  toolbar: HTMLElement | null;
  sync: ViewSync;
}

/** The transcript of a run. Only the part in sight is loaded and rendered, however long the log is. */
export function Transcript({ run, target, repeats, searchQuery, onEvent, onFork, toolbar, sync }: Props) {
  const isRunActive = isActive(run.status);
  const [wasActive] = useState(isRunActive);
  const log = useLog(run.id, run.last_seq, isRunActive);
  const viewport = useViewport(log, isSingleStep(run), isRunActive && target === undefined, sync);
  const folds = useFolds();
  const selection = useSelectedRow(log, isSingleStep(run), viewport, folds);
  const fieldRef = useRef<HTMLInputElement>(null);
  const [message, showMessage] = useTransientMessage();
  const {
    text: searchText,
    setText: setSearchText,
    search,
  } = useTranscriptSearch(run.id, target === undefined ? searchQuery : undefined, log.lastSeq);
  const paneRef = useRef<HTMLElement>(null);
  const markSelectedHere = useGoToTarget(target, repeats, search, selection, paneRef);
  const retry = useLoadRange(log, viewport.range.from - PAGE_EVENTS, viewport.range.to + PAGE_EVENTS);

  const follow = (isWanted: boolean) => {
    if (!isWanted) {
      viewport.stopFollowing();
      return;
    }
    selection.select(null);
    viewport.toEnd();
    onEvent(undefined);
  };
  const hasFolds = canExpandAny(log, isSingleStep(run));
  const setAll = (open: boolean) => {
    if (!hasFolds) return;
    viewport.stopFollowing();
    folds.setAll(open);
  };
  const { select } = selection;
  const onSelect = useCallback(
    (seq: number) => {
      select(seq);
      viewport.anchorAt(seq);
      markSelectedHere(seq);
      onEvent(seq);
    },
    [select, viewport, onEvent, markSelectedHere],
  );
  useTranscriptShortcuts({
    run,
    selection,
    folds,
    log,
    isSingleStep: isSingleStep(run),
    viewport,
    follow,
    setAll,
    isRunActive,
    fieldRef,
    showMessage,
  });
  usePublishChosen(run.id, lastSelectedSeq(log, selection.selectedSeq, isSingleStep(run)));
  const context = useContextValue(run, log, isRunActive && !run.interrupted, folds, viewport, onSelect, onFork);
  return (
    <section ref={paneRef} aria-label="Transcript" className="flex min-h-0 flex-1 flex-col">
      {toolbar &&
        createPortal(
          <Toolbar
            search={search}
            fieldRef={fieldRef}
            searchText={searchText}
            onSearchText={setSearchText}
            isFollowing={wasActive ? viewport.isAtEnd : null}
            canFollow={isRunActive}
            onFollow={follow}
            isAllExpanded={hasFolds ? folds.expandAll : null}
            onExpandAll={setAll}
            message={message}
          />,
          toolbar,
        )}
      {searchText.trim() && <HitLine search={search} />}
      <TranscriptContext value={context}>
        <SearchTextContext value={searchText.trim().toLowerCase()}>
          <RowStates>
            <Scroller
              viewport={viewport}
              log={log}
              folds={folds}
              selectedSeq={selection.selectedSeq}
              searchText={searchText.trim()}
              sync={sync}
            />
          </RowStates>
        </SearchTextContext>
      </TranscriptContext>
      {log.problem && <ErrorMessage error={log.problem} onRetry={retry} />}
    </section>
  );
}

/** Return the last event of the selected row. */
function lastSelectedSeq(log: RunLog, seq: number | null, isSingle: boolean): number | null {
  const page = seq === null ? undefined : log.page(pageOf(seq));
  const row = page && rowsOf(page, isSingle).get(seq ?? 0);
  return row ? lastSeqOf(row) : seq;
}

const MESSAGE_MS = 1_500;

/** A message that disappears after a moment. */
function useTransientMessage(): [string | null, (searchText: string) => void] {
  const [message, showMessage] = useState<string | null>(null);
  useEffect(() => {
    if (message === null) return;
    const timer = setTimeout(() => showMessage(null), MESSAGE_MS);
    return () => clearTimeout(timer);
  }, [message]);
  return [message, showMessage];
}

function useViewport(log: RunLog, isSingle: boolean, startsAtEnd: boolean, sync: ViewSync): Viewport {
  const [, rerender] = useReducer((n: number) => n + 1, 0);
  const [first] = useState(startsAtEnd);
  return useMemo(
    () => new Viewport(log, isSingle, first, rerender, (visible) => sync.setVisible(visible)),
    [log, isSingle, first, sync],
  );
}

/** The context of the rows; the same object until a value changes, so that rows are not rendered again. */
function useContextValue(
  run: RunDetail,
  log: RunLog,
  isRunActive: boolean,
  folds: Folds,
  viewport: Viewport,
  onSelect: (seq: number) => void,
  onFork: ((seq: number) => void) | undefined,
) {
  const { setOpen } = folds;
  const reason = cancelReason(run);
  const ids = run.awaits.map((call) => call.call_id).join("\n");
  return useMemo(
    () => ({
      log,
      isRunActive,
      cancelReason: reason,
      pendingCallIds: new Set(ids.split("\n")),
      onToggle: (seq: number, open: boolean) => {
        // Keep the row in place: the user wants to read what was opened.
        viewport.anchorAt(seq);
        setOpen(seq, open);
      },
      onSelect,
      onFork,
    }),
    [log, isRunActive, reason, ids, viewport, setOpen, onSelect, onFork],
  );
}

/** Go to the event of the address, unless the user selected it right here, and to the current search hit. */
function useGoToTarget(
  target: number | undefined,
  repeats: number,
  search: TranscriptSearch,
  { goTo }: RowSelection,
  paneRef: RefObject<HTMLElement | null>,
): (seq: number) => void {
  const selectedHereRef = useRef<number | null>(null);
  useEffect(() => {
    if (target !== undefined && target !== selectedHereRef.current) goTo(target);
    selectedHereRef.current = null;
  }, [target, repeats, goTo]);
  const hit = search.hits[search.index]?.seq;
  useEffect(() => {
    if (hit === undefined) return;
    goTo(hit);
  }, [hit, search.index, goTo, paneRef]);
  return useCallback((seq) => {
    selectedHereRef.current = seq;
  }, []);
}
