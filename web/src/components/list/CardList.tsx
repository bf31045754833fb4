import { defaultRangeExtractor, type Range, useVirtualizer } from "@tanstack/react-virtual";
import clsx from "clsx";
import { type RefObject, useCallback, useEffect, useRef } from "react";
import { useScrollAnchor } from "@/components/list/useScrollAnchor";
import { RunCard, type CardActions } from "@/components/list/RunCard";
import { NewRunsButton } from "@/components/list/NewRunsButton";
import { BranchStateCard } from "@/components/list/BranchStateCard";
import { heightOf, indexOf, ROW_HEIGHTS, type Row } from "@/views/runRows";

/** How many rows before the end the next page is fetched. */
const FETCH_AHEAD_ROWS = 80;
const OVERSCAN = 6;
const HEIGHTS = ROW_HEIGHTS[matchMedia("(pointer: coarse)").matches ? "coarse" : "fine"];

interface CardListProps {
  /** Identity of the list: another list starts at its top. Null while the rows still belong to the previous list. */
  listKey: string | null;
  rows: readonly Row[];
  selectedId: string | undefined;
  isTree: boolean;
  showsOwner: boolean;
  /** Fetch the next page; null if there is none, or while it is loading. */
  fetchNext: (() => void) | null;
  actions: CardActions;
  branches: { loadMore: (parent: string) => void; retry: (parent: string) => void };
  boxRef: RefObject<HTMLDivElement | null>;
}

/** The virtualized list: only rows in sight are rendered. */
export function CardList({
  listKey,
  rows,
  selectedId,
  isTree,
  showsOwner,
  fetchNext,
  actions,
  branches,
  boxRef,
}: CardListProps) {
  const isStale = listKey === null;
  const selectedIndex = indexOf(rows, selectedId);
  const tabStop = Math.max(0, selectedIndex);
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => boxRef.current,
    estimateSize: useCallback((index: number) => heightOf(rows[index], HEIGHTS), [rows]),
    getItemKey: useCallback((index: number) => rows[index]?.key ?? index, [rows]),
    overscan: OVERSCAN,
    // The tab stop is always rendered, also out of sight.
    rangeExtractor: useCallback((range: Range) => withTabStop(defaultRangeExtractor(range), tabStop), [tabStop]),
  });
  const rememberAnchors = useScrollAnchor(virtualizer, boxRef, rows, listKey);
  useScrollToSelected(
    selectedId,
    selectedIndex,
    (index) => virtualizer.scrollToIndex(index, { align: "auto" }),
    boxRef,
  );
  const end = virtualizer.range?.endIndex ?? 0;
  useEffect(() => {
    if (fetchNext && !isStale && end >= rows.length - FETCH_AHEAD_ROWS) fetchNext();
  }, [fetchNext, isStale, end, rows.length]);
  return (
    <>
      <NewRunsButton
        rows={rows}
        listKey={listKey}
        isAtTop={(virtualizer.scrollOffset ?? 0) <= 0}
        onScrollUp={() => boxRef.current?.scrollTo({ top: 0 })}
      />
      <div
        ref={boxRef}
        role="list"
        aria-label="Runs list"
        aria-busy={isStale}
        onScroll={rememberAnchors}
        className={clsx(
          "relative min-h-0 flex-1 overflow-y-auto overscroll-contain [overflow-anchor:none] thin-scroll",
          isStale && "opacity-60",
        )}
      >
        <div role="presentation" style={{ height: virtualizer.getTotalSize() }} />
        {virtualizer.getVirtualItems().map((item) => {
          const row = rows[item.index];
          if (!row) return null;
          return (
            <div
              key={item.key}
              role="listitem"
              aria-setsize={rows.length}
              aria-posinset={item.index + 1}
              className="absolute inset-x-0 top-0"
              style={{ height: item.size, transform: `translateY(${item.start}px)` }}
            >
              {row.kind === "run" ? (
                <RunCard
                  run={row.run}
                  depth={row.depth}
                  isExpanded={row.isExpanded}
                  isTree={isTree}
                  isSelected={item.index === selectedIndex}
                  isTabStop={item.index === tabStop}
                  showsOwner={showsOwner}
                  actions={actions}
                />
              ) : (
                <BranchStateCard row={row} onMore={branches.loadMore} onRetry={branches.retry} />
              )}
            </div>
          );
        })}
      </div>
    </>
  );
}

function withTabStop(indexes: number[], tabStop: number): number[] {
  if (indexes.length === 0 || indexes.includes(tabStop)) return indexes;
  return tabStop < (indexes[0] ?? 0) ? [tabStop, ...indexes] : [...indexes, tabStop];
}

/** Scroll the selected run into sight once it is in the list. Move the focus along if it was in the list. */
function useScrollToSelected(
  selectedId: string | undefined,
  selectedIndex: number,
  scrollTo: (index: number) => void,
  boxRef: RefObject<HTMLDivElement | null>,
): void {
  const pendingId = useRef<string>(undefined);
  const previousId = useRef<string>(undefined);
  useEffect(() => {
    if (previousId.current !== selectedId) pendingId.current = selectedId;
    previousId.current = selectedId;
    if (selectedIndex < 0 || pendingId.current === undefined) return;
    pendingId.current = undefined;
    // A narrow screen shows the run instead of the list.
    if (!boxRef.current?.clientHeight) return;
    scrollTo(selectedIndex);
    const focused = document.activeElement;
    if (focused instanceof HTMLElement && focused.dataset.run && boxRef.current.contains(focused)) {
      boxRef.current
        .querySelector<HTMLElement>(`[data-run="${CSS.escape(selectedId ?? "")}"]`)
        ?.focus({ preventScroll: true });
    }
  });
  useEffect(() => {
    // After the user has scrolled, do not jump to a run that enters the list later.
    const element = boxRef.current;
    const clearPending = () => void (pendingId.current = undefined);
    element?.addEventListener("wheel", clearPending, { passive: true });
    element?.addEventListener("pointerdown", clearPending);
    return () => {
      element?.removeEventListener("wheel", clearPending);
      element?.removeEventListener("pointerdown", clearPending);
    };
  }, [boxRef]);
}
