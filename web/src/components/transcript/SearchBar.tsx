import type { RefObject } from "react";
import { Button } from "@/components/ui/Button";
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
    <search className="flex min-w-0 flex-1 items-center gap-1">
      <input
        ref={fieldRef}
        type="search"
        aria-label="Search in this run"
        aria-keyshortcuts="/"
        placeholder="Search in this run"
        maxLength={200}
        value={text}
        onChange={(event) => onText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") {
            event.preventDefault();
            search.go(event.shiftKey ? -1 : 1);
          } else if (event.key === "Escape") {
            event.preventDefault();
            onText("");
            fieldRef.current?.blur();
          }
        }}
        className="h-7 w-full max-w-64 min-w-0 rounded border border-line bg-app px-2 text-xs placeholder:text-ink-faint"
      />
      {text.trim() !== "" && (
        <>
          <Button
            variant="ghost"
            aria-label="Previous hit"
            title="Previous hit (Shift+Enter)"
            disabled={!search.hits.length}
            onClick={() => search.go(-1)}
          >
            ‹
          </Button>
          <Button
            variant="ghost"
            aria-label="Next hit"
            title="Next hit (Enter)"
            disabled={!search.hits.length}
            onClick={() => search.go(1)}
          >
            ›
          </Button>
          <span role="status" className="shrink-0 text-xs text-ink-dull tabular-nums">
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
    <p className="truncate border-b border-line bg-app-side px-3 py-0.5 text-xs text-ink-dull">
      <span className="text-ink-faint tabular-nums">{hit.seq} </span>
      <Highlighted text={hit.snippet} />
    </p>
  );
}
