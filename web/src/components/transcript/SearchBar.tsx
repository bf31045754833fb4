import type { RefObject } from "react";
import { Button } from "@/components/ui/Button";
import { isEnter } from "@/components/ui/isEnter";
import { Highlighted } from "@/components/ui/Highlighted";
import type { TranscriptSearch } from "./useTranscriptSearch";

interface Props {
  fieldRef: RefObject<HTMLInputElement | null>;
  text: string;
  onText: (text: string) => void;
  search: TranscriptSearch;
}

/** The search field for a run, with the number of hits. */
export function SearchBar({ fieldRef, text, onText, search }: Props) {
  return (
    <search className="flex min-w-0 items-center gap-0.5">
      <input
        ref={fieldRef}
        type="search"
        aria-label="Search in this run"
        aria-keyshortcuts="/"
        placeholder="Find in run"
        maxLength={200}
        value={text}
        onChange={(event) => onText(event.target.value)}
        onKeyDown={(event) => {
          if (isEnter(event)) {
            event.preventDefault();
            search.go(event.shiftKey ? -1 : 1);
          } else if (event.key === "Escape") {
            event.preventDefault();
            onText("");
            fieldRef.current?.blur();
          }
        }}
        className="h-[26px] w-44 min-w-0 rounded-2 border border-border-strong bg-bg-pop px-2 text-12 placeholder:text-text-3 max-sm:w-28 coarse:text-16"
      />
      {text.trim() !== "" && (
        <>
          <Button
            variant="ghost"
            className="px-1.5"
            aria-label="Previous hit"
            title="Previous hit (Shift+Enter)"
            disabled={!search.hits.length}
            onClick={() => search.go(-1)}
          >
            ‹
          </Button>
          <Button
            variant="ghost"
            className="px-1.5"
            aria-label="Next hit"
            title="Next hit (Enter)"
            disabled={!search.hits.length}
            onClick={() => search.go(1)}
          >
            ›
          </Button>
          <span role="status" className="shrink-0 text-12 text-text-2 tabular-nums">
            {countText(search)}
          </span>
        </>
      )}
    </search>
  );
}

function countText({ hits, index, hasMore, isSearching, problem }: TranscriptSearch): string {
  if (problem) return problem.message;
  if (hits.length)
    return `${(index + 1).toLocaleString("en")} of ${hits.length.toLocaleString("en")}${hasMore ? "+" : ""}`;
  return isSearching ? "Searching…" : "No hits";
}

/**
 * The text around the current hit: the hit itself may be in truncated text, or in a row that shows it in another form.
 */
export function HitLine({ search }: { search: TranscriptSearch }) {
  const hit = search.hits[search.index];
  if (!hit) return null;
  return (
    <p className="shrink-0 truncate border-b border-border bg-bg-side px-5 py-0.5 text-12 text-text-2">
      <span className="text-text-3 tabular-nums">{hit.seq} </span>
      <Highlighted text={hit.snippet} />
    </p>
  );
}
