import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import {
  isPassing,
  LIST_POLL_MS,
  pollMs,
  Problem,
  type Run,
  type RunList as RunPage,
  runsQuery,
  useConnection,
} from "@/api";
import { useBranches } from "@/components/list/useBranches";
import type { CardActions } from "@/components/list/RunCard";
import { Cards } from "@/components/list/CardList";
import { useChoice } from "@/components/list/useSelectedRun";
import { Filters } from "@/components/list/Filters";
import { useListKeys } from "@/components/list/useListShortcuts";
import { Nothing, Placeholders } from "@/components/list/EmptyList";
import { useOpening } from "@/components/list/useExpandPath";
import { useReveal, useToLast } from "@/components/list/useLoadSelected";
import { SearchBox } from "@/components/list/SearchBox";
import { Trouble } from "@/components/ui/ErrorMessage";
import { enterZone } from "@/shortcuts";
import { filterOf, useHref, usePlace } from "@/address";
import { rowsOf, runsOf } from "@/views/runRows";

const NONE: ReadonlySet<string> = new Set();
const NO_PAGES: readonly RunPage[] = [];

/** The left column: search, filters and the list of runs. */
export function RunList() {
  const place = usePlace();
  const filter = filterOf(place);
  const everyMs = pollMs(useConnection(), LIST_POLL_MS);
  const query = useInfiniteQuery({
    ...runsQuery(filter),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (isPassing(state.error) ? LIST_POLL_MS : everyMs),
  });
  const pages = query.data?.pages ?? NO_PAGES;
  const [opened, setOpened] = useState(NONE);
  const inTree = filter.roots === true;
  const { branches, more, again } = useBranches(inTree ? opened : NONE, everyMs);
  const runs = useMemo(() => runsOf(pages), [pages]);
  const rows = useMemo(() => rowsOf(runs, inTree ? opened : NONE, branches), [runs, inTree, opened, branches]);
  const seen = useSeen(pages);
  const choice = useChoice();
  const box = useRef<HTMLDivElement>(null);
  const onToggle = useCallback((id: string) => setOpened((before) => toggled(before, id)), []);
  const open = useCallback(
    (ids: readonly string[]) =>
      setOpened((before) => (ids.every((id) => before.has(id)) ? before : new Set([...before, ...ids]))),
    [],
  );
  const top = useOpening(place.worker, inTree ? { rows, branches, open, more } : null);
  const actions = useActions(choice.choose, onToggle);
  const { fetchNextPage } = query;
  const canGoOn = query.hasNextPage && !query.isFetching && !query.isFetchNextPageError;
  const onEnd = useCallback(() => void fetchNextPage(), [fetchNextPage]);
  const toLast = useToLast(filter, pages[0]?.total, choice.move);
  useListKeys({ rows, choice, box, onToggle: inTree ? onToggle : null, toLast: query.hasNextPage ? toLast : null });
  useReveal(inTree ? top : choice.chosen, {
    rows,
    filter,
    onEnd: canGoOn && !query.isPlaceholderData ? onEnd : null,
    box,
  });
  const isOnItsWay = query.isPending || query.isPlaceholderData || query.hasNextPage;
  useEffect(() => {
    // All loaded runs have left the list; the remaining ones are further down.
    if (rows.length === 0 && canGoOn) onEnd();
  }, [rows.length, canGoOn, onEnd]);
  return (
    <>
      <div className="flex shrink-0 flex-col gap-2 px-3 py-2">
        <SearchBox onEnter={() => box.current?.querySelector<HTMLElement>('[data-run][tabindex="0"]')?.focus()} />
        <Filters total={pages[0]?.total} seen={seen} />
      </div>
      {query.isError && (!query.data || isRefused(query)) && (
        <Trouble error={query.error} onRetry={() => void query.refetch()} />
      )}
      {rows.length === 0 && !query.isError && (isOnItsWay ? <Placeholders /> : <Nothing />)}
      {rows.length > 0 && (
        <Cards
          list={query.isPlaceholderData ? null : JSON.stringify(filter)}
          rows={rows}
          chosen={choice.chosen}
          inTree={inTree}
          showsOwner={place.owner === undefined}
          onEnd={canGoOn ? onEnd : null}
          actions={actions}
          branches={{ more, again }}
          box={box}
        />
      )}
      {query.isFetchNextPageError && runs.length > 0 && <Trouble error={query.error} onRetry={onEnd} />}
    </>
  );
}

/** Whether the server refused the request. While the server is unreachable, the top bar says so and the list stays. */
function isRefused({ error, isFetchNextPageError }: { error: Error | null; isFetchNextPageError: boolean }): boolean {
  return !isFetchNextPageError && !(error instanceof Problem && error.status === 0);
}

function toggled(opened: ReadonlySet<string>, id: string): ReadonlySet<string> {
  const now = new Set(opened);
  if (!now.delete(id)) now.add(id);
  return now;
}

/** Actions of the cards; the same object until they change, so that cards are not rendered again. */
function useActions(choose: (runId: string) => void, onToggle: (runId: string) => void): CardActions {
  const hrefOf = useHref();
  return useMemo(
    () => ({
      hrefOf,
      onToggle,
      onChoose: (runId, byKeys) => {
        choose(runId);
        if (byKeys) enterZone("detail");
      },
    }),
    [hrefOf, onToggle, choose],
  );
}

/**
 * Collect one run of each worker and channel seen so far: the options of the filters grow, and do not shrink with a
 * filter.
 */
function useSeen(pages: readonly RunPage[]): readonly Run[] {
  const [seen, setSeen] = useState<ReadonlyMap<string, Run>>(new Map());
  const found = useMemo(() => pages.flatMap((page) => [...examplesOf(page)]), [pages]);
  const added = found.filter(([key]) => !seen.has(key));
  if (added.length) setSeen(new Map([...seen, ...added]));
  return useMemo(() => [...seen.values()], [seen]);
}

const examples = new WeakMap<RunPage, ReadonlyMap<string, Run>>();

/** One run of each worker and channel on a page. Cached by page, since a list may have a thousand pages. */
function examplesOf(page: RunPage): ReadonlyMap<string, Run> {
  const known = examples.get(page);
  if (known) return known;
  const found = new Map(page.workers.map((run) => [`${run.name} ${run.channel_id ?? ""}`, run]));
  examples.set(page, found);
  return found;
}
