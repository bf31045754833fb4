import type { RefObject } from "react";
import { Button } from "@/components/ui/Button";
import type { UsedFind } from "./useTranscriptSearch";
import { FindBar } from "./SearchBar";

interface Props {
  find: UsedFind;
  field: RefObject<HTMLInputElement | null>;
  words: string;
  onWords: (words: string) => void;
  /** Null where the log is complete. */
  following: boolean | null;
  onFollow: (following: boolean) => void;
  /** Whether all expandable rows are expanded; null where there are none. */
  all: boolean | null;
  onAll: (open: boolean) => void;
  /** A short message; usually the number of events. */
  said: string;
}

export function Toolbar({ find, field, words, onWords, following, onFollow, all, onAll, said }: Props) {
  return (
    <div className="flex shrink-0 items-center gap-1.5 border-b border-line px-3 py-1">
      <FindBar find={find} field={field} words={words} onWords={onWords} />
      <span aria-live="polite" className="hidden shrink-0 text-xs text-ink-faint tabular-nums lg:inline">
        {said}
      </span>
      {following !== null && (
        <Button
          aria-pressed={following}
          title="Stay at the end as more comes (f)"
          onClick={() => onFollow(!following)}
          className="aria-pressed:border-accent aria-pressed:text-accent"
        >
          <span aria-hidden>{following ? "●" : "○"}</span> Follow
        </Button>
      )}
      <Button
        disabled={all === null}
        title={
          all === null ? "There are no tool calls or thoughts to open" : `${all ? "Close" : "Open"} all tool calls (e)`
        }
        onClick={() => onAll(!all)}
      >
        {all ? "Collapse all" : "Expand all"}
      </Button>
    </div>
  );
}
