import type { RefObject } from "react";
import { Button } from "@/components/ui/Button";
import { Marked } from "@/components/ui/Highlighted";
import type { UsedFind } from "./useTranscriptSearch";

interface Props {
  field: RefObject<HTMLInputElement | null>;
  words: string;
  onWords: (words: string) => void;
  find: UsedFind;
}

/** The search field for a run, with the number of hits. */
export function FindBar({ field, words, onWords, find }: Props) {
  return (
    <search className="flex min-w-0 flex-1 items-center gap-1">
      <input
        ref={field}
        type="search"
        aria-label="Search in this run"
        aria-keyshortcuts="/"
        placeholder="Search in this run"
        maxLength={200}
        value={words}
        onChange={(event) => onWords(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter") {
            event.preventDefault();
            find.go(event.shiftKey ? -1 : 1);
          } else if (event.key === "Escape") {
            event.preventDefault();
            onWords("");
            field.current?.blur();
          }
        }}
        className="h-7 w-full max-w-64 min-w-0 rounded border border-line bg-app px-2 text-xs placeholder:text-ink-faint"
      />
      {words.trim() !== "" && (
        <>
          <Button
            look="bare"
            aria-label="Previous hit"
            title="Previous hit (Shift and Enter)"
            disabled={!find.hits.length}
            onClick={() => find.go(-1)}
          >
            ‹
          </Button>
          <Button
            look="bare"
            aria-label="Next hit"
            title="Next hit (Enter)"
            disabled={!find.hits.length}
            onClick={() => find.go(1)}
          >
            ›
          </Button>
          <span role="status" className="shrink-0 text-xs text-ink-dull tabular-nums">
            {countWords(find)}
          </span>
        </>
      )}
    </search>
  );
}

function countWords({ hits, place, more, searching, problem }: UsedFind): string {
  if (problem) return problem.message;
  if (hits.length)
    return `${(place + 1).toLocaleString("en")} of ${hits.length.toLocaleString("en")}${more ? "+" : ""}`;
  return searching ? "Searching…" : "No hits";
}

/**
 * The text around the current hit: the hit itself may be in truncated text, or in a row that shows it in another form.
 */
export function HitLine({ find }: { find: UsedFind }) {
  const hit = find.hits[find.place];
  if (!hit) return null;
  return (
    <p className="truncate border-b border-line bg-app-side px-3 py-0.5 text-xs text-ink-dull">
      <span className="text-ink-faint tabular-nums">{hit.seq} </span>
      <Marked text={hit.snippet} />
    </p>
  );
}
