/** Search in a run. The server searches the log part by part, as far as the user goes. */
import { useCallback, useEffect, useEffectEvent, useReducer, useRef, useState } from "react";
import { find, type Found, type Problem, problemOf } from "@/api";
import { partsOf } from "@/views/searchTerms";

type Hit = Found["hits"][number];

/** How many hits are fetched without a request of the user: enough for a useful count. */
const BY_ITSELF = 1_000;
const REST_MS = 250;

export interface Finding {
  readonly hits: readonly Hit[];
  /** The index of the current hit. */
  readonly place: number;
  /** Whether there may be more hits. */
  readonly more: boolean;
  readonly searching: boolean;
  readonly problem: Problem | null;
  /** The last event that was searched. */
  readonly searchedTo: number;
}

const NOTHING: Finding = { hits: [], place: -1, more: false, searching: false, problem: null, searchedTo: 0 };

type Told =
  | { type: "begun" }
  | { type: "emptied" }
  | { type: "found"; found: Found }
  | { type: "failed"; problem: Problem }
  | { type: "moved"; place: number };

export function told(state: Finding, what: Told): Finding {
  switch (what.type) {
    case "begun":
      return { ...state, searching: true, problem: null };
    case "emptied":
      return NOTHING;
    case "failed":
      return { ...state, searching: false, problem: what.problem };
    case "moved":
      return { ...state, place: what.place };
    case "found": {
      const hits = [...state.hits, ...what.found.hits];
      const place = state.place < 0 && hits.length ? 0 : state.place;
      return {
        hits,
        place,
        more: what.found.more,
        searching: false,
        problem: null,
        searchedTo: what.found.searched_to,
      };
    }
  }
}

export interface UsedFind extends Finding {
  go: (step: 1 | -1) => void;
}

/** Whether the whole log was searched without a hit. */
const isVain = ({ hits, more, searching, problem, searchedTo }: Finding) =>
  hits.length === 0 && !more && !searching && !problem && searchedTo > 0;

/**
 * The search text of a run and its hits. It starts with the query that found the run. A search over all runs also finds
 * words that are far apart in a run; where they are not found together, each is tried by itself.
 */
export function useSought(runId: string, sought: string | undefined, lastSeq: number) {
  const [words, setWords] = useState("");
  /** The terms to try next; null once the user has typed a search text. */
  const [next, setNext] = useState<readonly string[] | null>(null);
  const find = useFind(runId, words.trim(), lastSeq);
  const tryNext = ([first = "", ...others]: readonly string[]) => {
    setWords(first);
    setNext(first ? others : null);
  };
  useEffect(() => {
    if (sought !== undefined) tryNext(partsOf(sought));
  }, [runId, sought]);
  const inVain = next !== null && isVain(find);
  // Once for each term: until the next search starts, the state is still that of the previous term.
  const goOn = useEffectEvent(() => tryNext(next ?? []));
  useEffect(() => {
    if (inVain) goOn();
  }, [inVain]);
  return {
    find,
    words,
    setWords: (typed: string) => {
      setNext(null);
      setWords(typed);
    },
  };
}

function useFind(runId: string, words: string, lastSeq: number): UsedFind {
  const [state, tell] = useReducer(told, NOTHING);
  const asking = useRef<AbortController | null>(null);
  const ask = useCallback(
    (after: number) => {
      asking.current?.abort();
      const control = new AbortController();
      asking.current = control;
      tell({ type: "begun" });
      find(runId, words, after, control.signal).then(
        (found) => control.signal.aborted || tell({ type: "found", found }),
        (error: unknown) => control.signal.aborted || tell({ type: "failed", problem: problemOf(error, 0) }),
      );
    },
    [runId, words],
  );
  useEffect(() => {
    asking.current?.abort();
    tell({ type: "emptied" });
    if (!words) return;
    const timer = setTimeout(() => ask(0), REST_MS);
    return () => clearTimeout(timer);
  }, [words, ask]);
  useEffect(() => () => asking.current?.abort(), []);
  // A long log is searched in several requests.
  const goesOn = words !== "" && state.more && !state.searching && !state.problem && state.hits.length < BY_ITSELF;
  useEffect(() => {
    if (goesOn) ask(state.searchedTo);
  }, [goesOn, ask, state.searchedTo]);

  const go = (step: 1 | -1) => {
    const count = state.hits.length;
    const isBeyond = state.place + step >= count;
    // Continue the search: new events have arrived, or the search was not complete.
    if (isBeyond && !state.searching && words && (state.more || lastSeq > state.searchedTo)) ask(state.searchedTo);
    if (count) tell({ type: "moved", place: (state.place + step + count) % count });
  };
  return { ...state, go };
}
