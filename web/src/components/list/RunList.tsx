import { keepPreviousData, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import {
  countsQuery,
  isTransient,
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
import { CardList } from "@/components/list/CardList";
import { useSelectedRun } from "@/components/list/useSelectedRun";
import { FilterMenu } from "@/components/list/FilterMenu";
import { FilterChips, StatusPills } from "@/components/list/Filters";
import { SortMenu } from "@/components/list/SortMenu";
import { useListShortcuts } from "@/components/list/useListShortcuts";
import { EmptyList, Placeholders } from "@/components/list/EmptyList";
import { useExpandPath } from "@/components/list/useExpandPath";
import { useListedRuns } from "@/components/list/useListedRuns";
import { useLoadSelected, useSelectLast } from "@/components/list/useLoadSelected";
import { SearchBox } from "@/components/list/SearchBox";
import { PinnedNeedsYou } from "@/components/needsyou/PinnedNeedsYou";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { enterZone } from "@/shortcuts";
import { filterOf, useRunHref, useAddress } from "@/useAddress";
import { totalText } from "@/views/filterOptions";
import { rowsOf } from "@/views/runRows";
import { toggled } from "@/views/sets";

const NONE: ReadonlySet<string> = new Set();
const NO_PAGES: readonly RunPage[] = [];

/** The left column: search, filters and the list of runs. */
export function RunList() {
  const address = useAddress();
  const filter = filterOf(address);
  const pollEveryMs = pollMs(useConnection(), LIST_POLL_MS);
  const query = useInfiniteQuery({
    ...runsQuery(filter),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (isTransient(state.error) ? LIST_POLL_MS : pollEveryMs),
  });
  const counts = useQuery({
    ...countsQuery(filter),
    placeholderData: keepPreviousData,
    refetchInterval: pollEveryMs,
  }).data;
  const pages = query.data?.pages ?? NO_PAGES;
  const [expanded, setExpanded] = useState(NONE);
  const isTree = filter.roots === true;
  const { branches, loadMore, retry } = useBranches(isTree ? expanded : NONE, pollEveryMs);
  const runs = useListedRuns(pages, filter.since);
  const rows = useMemo(() => rowsOf(runs, isTree ? expanded : NONE, branches), [runs, isTree, expanded, branches]);
  const seenRuns = useSeenRuns(pages);
  const selection = useSelectedRun();
  const boxRef = useRef<HTMLDivElement>(null);
  const onToggle = useCallback((id: string) => setExpanded((before) => toggled(before, id)), []);
  const expand = useCallback(
    (ids: readonly string[]) =>
      setExpanded((before) => (ids.every((id) => before.has(id)) ? before : new Set([...before, ...ids]))),
    [],
  );
  const rootId = useExpandPath(address.worker, isTree ? { rows, branches, expand, loadMore } : null);
  const actions = useActions(selection.select, onToggle);
  const { fetchNextPage } = query;
  const canFetchNext = query.hasNextPage && !query.isFetching && !query.isFetchNextPageError;
  const fetchNext = useCallback(() => void fetchNextPage(), [fetchNextPage]);
  const { selectLast, error: lastError } = useSelectLast(filter, pages[0]?.total, selection.move);
  useListShortcuts({
    rows,
    selection,
    boxRef,
    onToggle: isTree ? onToggle : null,
    selectLast: query.hasNextPage ? selectLast : null,
  });
  useLoadSelected(isTree ? rootId : selection.selectedId, {
    rows,
    filter,
    fetchNext: canFetchNext && !query.isPlaceholderData ? fetchNext : null,
    boxRef,
  });
  const isLoading = query.isPending || query.isPlaceholderData || query.hasNextPage;
  useEffect(() => {
    // All loaded runs have left the list; the remaining ones are further down.
    if (rows.length === 0 && canFetchNext) fetchNext();
  }, [rows.length, canFetchNext, fetchNext]);
  return (
    <>
      <div className="flex shrink-0 flex-col gap-2 border-b border-border px-3 pt-2.5 pb-2">
        <div className="flex gap-1.5">
          <SearchBox onEnter={() => boxRef.current?.querySelector<HTMLElement>('[data-run][tabindex="0"]')?.focus()} />
          <FilterMenu seenRuns={seenRuns} />
          <SortMenu />
        </div>
        <StatusPills counts={counts} />
        <FilterChips seenRuns={seenRuns} />
      </div>
      <PinnedNeedsYou />
      {query.isError && (!query.data || isRefused(query)) && (
        <ErrorMessage error={query.error} onRetry={() => void query.refetch()} />
      )}
      {rows.length === 0 && !query.isError && (isLoading ? <Placeholders /> : <EmptyList />)}
      {rows.length > 0 && (
        <CardList
          listKey={query.isPlaceholderData ? null : JSON.stringify(filter)}
          rows={rows}
          selectedId={selection.selectedId}
          isTree={isTree}
          showsOwner={address.owner === undefined}
          fetchNext={canFetchNext ? fetchNext : null}
          actions={actions}
          branches={{ loadMore, retry }}
          boxRef={boxRef}
        />
      )}
      {query.isFetchNextPageError && runs.length > 0 && <ErrorMessage error={query.error} onRetry={fetchNext} />}
      {lastError !== null && <ErrorMessage error={lastError} onRetry={selectLast} />}
      <footer className="mt-auto flex h-7 shrink-0 items-center gap-2.5 border-t border-border px-3 text-11 whitespace-nowrap text-text-3">
        <Hint keys={["j", "k"]}>move</Hint>
        <Hint keys={["→"]}>unfold</Hint>
        <Hint keys={["[", "]"]}>failures</Hint>
        <span className="flex-1" />
        {pages[0] && <span className="tabular-nums">{totalText(pages[0].total)}</span>}
      </footer>
    </>
  );
}

function Hint({ keys, children }: { keys: readonly string[]; children: string }) {
  return (
    <span aria-hidden className="flex items-center gap-1 coarse:hidden">
      {keys.map((key) => (
        <kbd key={key}>{key}</kbd>
      ))}
      {children}
    </span>
  );
}

/** Whether the server refused the request. While the server is unreachable, the top bar says so and the list stays. */
function isRefused({ error, isFetchNextPageError }: { error: Error | null; isFetchNextPageError: boolean }): boolean {
  return !isFetchNextPageError && !(error instanceof Problem && error.status === 0);
}

/** Actions of the cards; the same object until they change, so that cards are not rendered again. */
function useActions(select: (runId: string) => void, onToggle: (runId: string) => void): CardActions {
  const hrefOf = useRunHref();
  return useMemo(
    () => ({
      hrefOf,
      onToggle,
      onSelect: (runId, byKeys) => {
        select(runId);
        if (byKeys) enterZone("detail");
      },
    }),
    [hrefOf, onToggle, select],
  );
}

/**
 * Collect one run of each combination of filters seen so far: the options of the filters grow, and do not shrink with a
 * filter.
 */
function useSeenRuns(pages: readonly RunPage[]): readonly Run[] {
  const [seenRuns, setSeenRuns] = useState<ReadonlyMap<string, Run>>(new Map());
  const found = useMemo(() => pages.flatMap((page) => [...examplesOf(page)]), [pages]);
  const added = found.filter(([key]) => !seenRuns.has(key));
  if (added.length) setSeenRuns(new Map([...seenRuns, ...added]));
  return useMemo(() => [...seenRuns.values()], [seenRuns]);
}

const examples = new WeakMap<RunPage, ReadonlyMap<string, Run>>();

/** One run of each combination of what the filters offer on a page. Cached by page, since a list may have a thousand pages. */
function examplesOf(page: RunPage): ReadonlyMap<string, Run> {
  const known = examples.get(page);
  if (known) return known;
  const found = new Map(
    page.workers.map((run) => [
      [run.name, run.channel_id, run.model, run.provider, run.error?.code].map(String).join(" "),
      run,
    ]),
  );
  examples.set(page, found);
  return found;
}
