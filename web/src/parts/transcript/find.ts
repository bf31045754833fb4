/** Searching in a run: the server looks for the words, as far into the log as somebody goes. */
import { useCallback, useEffect, useEffectEvent, useReducer, useRef, useState } from "react";
import { find, type Found, type Problem, problemOf } from "@/api";
import { partsOf } from "@/views/sought";

type Hit = Found["hits"][number];

/** So many hits are got without being asked for: enough for a count that says something. */
const BY_ITSELF = 1_000;
const REST_MS = 250;

export interface Finding {
  readonly hits: readonly Hit[];
  /** Which of them, from 0. */
  readonly place: number;
  /** Whether there may be more than these. */
  readonly more: boolean;
  readonly searching: boolean;
  readonly problem: Problem | null;
  /** How far was looked. */
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

/** Whether all was looked at, and nothing found. */
const isVain = ({ hits, more, searching, problem, searchedTo }: Finding) =>
  hits.length === 0 && !more && !searching && !problem && searchedTo > 0;

/**
 * The search in a run, and its words. Those that found the run come first: a search over all runs finds words that stand
 * far from each other, so that, where they are not found together, each is looked for by itself.
 */
export function useSought(runId: string, sought: string | undefined, lastSeq: number) {
  const [words, setWords] = useState("");
  /** What is tried next; null where somebody typed the words. */
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
  // Once for each: what is known is of the words before until the next ones are looked for.
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
  // A long log is searched in several goes.
  const goesOn = words !== "" && state.more && !state.searching && !state.problem && state.hits.length < BY_ITSELF;
  useEffect(() => {
    if (goesOn) ask(state.searchedTo);
  }, [goesOn, ask, state.searchedTo]);

  const go = (step: 1 | -1) => {
    const count = state.hits.length;
    const isBeyond = state.place + step >= count;
    // What has come since, or was not looked at yet.
    if (isBeyond && !state.searching && words && (state.more || lastSeq > state.searchedTo)) ask(state.searchedTo);
    if (count) tell({ type: "moved", place: (state.place + step + count) % count });
  };
  return { ...state, go };
}
