import { defaultRangeExtractor, type Range, useVirtualizer } from "@tanstack/react-virtual";
import clsx from "clsx";
import { type RefObject, useCallback, useEffect, useRef } from "react";
import { useAnchor } from "@/components/list/useScrollAnchor";
import { Card, type CardActions } from "@/components/list/RunCard";
import { NewOnTop } from "@/components/list/NewRunsButton";
import { NoteCard } from "@/components/list/BranchStateCard";
import { heightOf, indexOf, type Row } from "@/views/runRows";

/** How many rows before the end the next page is fetched. */
const AHEAD = 80;
const OVERSCAN = 6;

interface CardsProps {
  /** Identity of the list: another list starts at its top. Null while the rows still belong to the previous list. */
  list: string | null;
  rows: readonly Row[];
  chosen: string | undefined;
  inTree: boolean;
  showsOwner: boolean;
  /** Fetch the next page; null where there is none, or while it is loading. */
  onEnd: (() => void) | null;
  actions: CardActions;
  branches: { more: (parent: string) => void; again: (parent: string) => void };
  box: RefObject<HTMLDivElement | null>;
}

/** The virtualized list: only rows in sight are rendered. */
export function Cards({ list, rows, chosen, inTree, showsOwner, onEnd, actions, branches, box }: CardsProps) {
  const isOld = list === null;
  const place = indexOf(rows, chosen);
  const stop = Math.max(0, place);
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: useCallback((index: number) => heightOf(rows[index]), [rows]),
    getItemKey: useCallback((index: number) => rows[index]?.key ?? index, [rows]),
    overscan: OVERSCAN,
    // The tab stop is always rendered, also out of sight.
    rangeExtractor: useCallback((range: Range) => withStop(defaultRangeExtractor(range), stop), [stop]),
  });
  const remember = useAnchor(virtualizer, box, rows, list);
  useShown(chosen, place, (index) => virtualizer.scrollToIndex(index, { align: "auto" }), box);
  const end = virtualizer.range?.endIndex ?? 0;
  useEffect(() => {
    if (onEnd && !isOld && end >= rows.length - AHEAD) onEnd();
  }, [onEnd, isOld, end, rows.length]);
  return (
    <>
      <NewOnTop
        rows={rows}
        list={list}
        isAtTop={(virtualizer.scrollOffset ?? 0) <= 0}
        onUp={() => box.current?.scrollTo({ top: 0 })}
      />
      <div
        ref={box}
        role="list"
        aria-label="Runs list"
        aria-busy={isOld}
        onScroll={remember}
        className={clsx(
          "relative min-h-0 flex-1 overflow-y-auto overscroll-contain border-t border-line [overflow-anchor:none]",
          isOld && "opacity-60",
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
                <Card
                  run={row.run}
                  depth={row.depth}
                  opened={row.opened}
                  inTree={inTree}
                  isChosen={item.index === place}
                  isStop={item.index === stop}
                  showsOwner={showsOwner}
                  actions={actions}
                />
              ) : (
                <NoteCard row={row} onMore={branches.more} onAgain={branches.again} />
              )}
            </div>
          );
        })}
      </div>
    </>
  );
}

function withStop(indexes: number[], stop: number): number[] {
  if (indexes.length === 0 || indexes.includes(stop)) return indexes;
  return stop < (indexes[0] ?? 0) ? [stop, ...indexes] : [...indexes, stop];
}

/** Scroll the selected run into sight once it is in the list. Move the focus along if it was in the list. */
function useShown(
  chosen: string | undefined,
  place: number,
  show: (index: number) => void,
  box: RefObject<HTMLDivElement | null>,
): void {
  const toShow = useRef<string>(undefined);
  const before = useRef<string>(undefined);
  useEffect(() => {
    if (before.current !== chosen) toShow.current = chosen;
    before.current = chosen;
    if (place < 0 || toShow.current === undefined) return;
    toShow.current = undefined;
    // A narrow screen shows the run instead of the list.
    if (!box.current?.clientHeight) return;
    show(place);
    const focused = document.activeElement;
    if (focused instanceof HTMLElement && focused.dataset.run && box.current.contains(focused)) {
      box.current
        .querySelector<HTMLElement>(`[data-run="${CSS.escape(chosen ?? "")}"]`)
        ?.focus({ preventScroll: true });
    }
  });
  useEffect(() => {
    // After the user has scrolled, do not jump to a run that enters the list later.
    const element = box.current;
    const forget = () => void (toShow.current = undefined);
    element?.addEventListener("wheel", forget, { passive: true });
    element?.addEventListener("pointerdown", forget);
    return () => {
      element?.removeEventListener("wheel", forget);
      element?.removeEventListener("pointerdown", forget);
    };
  }, [box]);
}
