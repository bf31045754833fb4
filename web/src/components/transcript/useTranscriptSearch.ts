/** Search in a run. The server searches the log part by part, as far as the user goes. */
import { useCallback, useEffect, useEffectEvent, useReducer, useRef, useState } from "react";
import { findInRun, type SearchHits, type Problem, problemOf } from "@/api";
import { searchTermsOf } from "@/views/searchTerms";

type Hit = SearchHits["hits"][number];

/** How many hits are fetched without a request of the user: enough for a useful count. */
const AUTOMATIC_HITS = 1_000;
const TYPING_PAUSE_MS = 250;

export interface SearchState {
  readonly hits: readonly Hit[];
  /** The index of the current hit. */
  readonly index: number;
  /** Whether there may be more hits. */
  readonly hasMore: boolean;
  readonly isSearching: boolean;
  readonly problem: Problem | null;
  /** The last event that was searched. */
  readonly searchedTo: number;
}

const NO_SEARCH: SearchState = {
  hits: [],
  index: -1,
  hasMore: false,
  isSearching: false,
  problem: null,
  searchedTo: 0,
};

type SearchAction =
  | { type: "started" }
  | { type: "cleared" }
  | { type: "found"; found: SearchHits }
  | { type: "failed"; problem: Problem }
  | { type: "moved"; index: number };

export function searchReducer(state: SearchState, action: SearchAction): SearchState {
  switch (action.type) {
    case "started":
      return { ...state, isSearching: true, problem: null };
    case "cleared":
      return NO_SEARCH;
    case "failed":
      return { ...state, isSearching: false, problem: action.problem };
    case "moved":
      return { ...state, index: action.index };
    case "found": {
      const hits = [...state.hits, ...action.found.hits];
      const index = state.index < 0 && hits.length ? 0 : state.index;
      return {
        hits,
        index,
        hasMore: action.found.more,
        isSearching: false,
        problem: null,
        searchedTo: action.found.searched_to,
      };
    }
  }
}

export interface TranscriptSearch extends SearchState {
  go: (step: 1 | -1) => void;
}

/** Whether the whole log was searched without a hit. */
const hasNoHits = ({ hits, hasMore, isSearching, problem, searchedTo }: SearchState) =>
  hits.length === 0 && !hasMore && !isSearching && !problem && searchedTo > 0;

/**
 * The search text of a run and its hits. It starts with the query that found the run. A search over all runs also finds
 * words that are far apart in a run; if they are not found together, each is tried by itself.
 */
export function useTranscriptSearch(runId: string, searchQuery: string | undefined, lastSeq: number) {
  const [text, setText] = useState("");
  /** The terms to try next; null once the user has typed a search text. */
  const [nextTerms, setNextTerms] = useState<readonly string[] | null>(null);
  const search = useSearch(runId, text.trim(), lastSeq);
  const tryNext = ([first = "", ...others]: readonly string[]) => {
    setText(first);
    setNextTerms(first ? others : null);
  };
  useEffect(() => {
    if (searchQuery !== undefined) tryNext(searchTermsOf(searchQuery));
  }, [runId, searchQuery]);
  const isFruitless = nextTerms !== null && hasNoHits(search);
  // Once for each term: until the next search starts, the state is still that of the previous term.
  const tryRemaining = useEffectEvent(() => tryNext(nextTerms ?? []));
  useEffect(() => {
    if (isFruitless) tryRemaining();
  }, [isFruitless]);
  return {
    search,
    text,
    setText: (typed: string) => {
      setNextTerms(null);
      setText(typed);
    },
  };
}

function useSearch(runId: string, text: string, lastSeq: number): TranscriptSearch {
  const [state, dispatch] = useReducer(searchReducer, NO_SEARCH);
  const requestRef = useRef<AbortController | null>(null);
  const searchAfter = useCallback(
    (after: number) => {
      requestRef.current?.abort();
      const control = new AbortController();
      requestRef.current = control;
      dispatch({ type: "started" });
      findInRun(runId, text, after, control.signal).then(
        (found) => control.signal.aborted || dispatch({ type: "found", found }),
        (error: unknown) => control.signal.aborted || dispatch({ type: "failed", problem: problemOf(error, 0) }),
      );
    },
    [runId, text],
  );
  useEffect(() => {
    requestRef.current?.abort();
    dispatch({ type: "cleared" });
    if (!text) return;
    const timer = setTimeout(() => searchAfter(0), TYPING_PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text, searchAfter]);
  useEffect(() => () => requestRef.current?.abort(), []);
  // A long log is searched in several requests.
  const needsMore =
    text !== "" && state.hasMore && !state.isSearching && !state.problem && state.hits.length < AUTOMATIC_HITS;
  useEffect(() => {
    if (needsMore) searchAfter(state.searchedTo);
  }, [needsMore, searchAfter, state.searchedTo]);

  const go = (step: 1 | -1) => {
    const count = state.hits.length;
    const isPastLast = state.index + step >= count;
    // Continue the search: new events have arrived, or the search was not complete.
    if (isPastLast && !state.isSearching && text && (state.hasMore || lastSeq > state.searchedTo))
      searchAfter(state.searchedTo);
    if (count) dispatch({ type: "moved", index: (state.index + step + count) % count });
  };
  return { ...state, go };
}
