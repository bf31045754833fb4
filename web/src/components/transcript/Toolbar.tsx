import type { RefObject } from "react";
import { Button } from "@/components/ui/Button";
import type { TranscriptSearch } from "./useTranscriptSearch";
import { SearchBar } from "./SearchBar";

interface Props {
  search: TranscriptSearch;
  fieldRef: RefObject<HTMLInputElement | null>;
  searchText: string;
  onSearchText: (searchText: string) => void;
  /** Null if the log is complete. */
  isFollowing: boolean | null;
  onFollow: (isFollowing: boolean) => void;
  /** Whether all expandable rows are expanded; null if there are none. */
  isAllExpanded: boolean | null;
  onExpandAll: (open: boolean) => void;
  /** A short message; usually the number of events. */
  message: string;
}

export function Toolbar({
  search,
  fieldRef,
  searchText,
  onSearchText,
  isFollowing,
  onFollow,
  isAllExpanded,
  onExpandAll,
  message,
}: Props) {
  return (
    <div className="flex shrink-0 items-center gap-1.5 border-b border-line px-3 py-1">
      <SearchBar search={search} fieldRef={fieldRef} text={searchText} onText={onSearchText} />
      <span aria-live="polite" className="hidden shrink-0 text-xs text-ink-faint tabular-nums lg:inline">
        {message}
      </span>
      {isFollowing !== null && (
        <Button
          aria-pressed={isFollowing}
          title="Follow new events (f)"
          onClick={() => onFollow(!isFollowing)}
          className="aria-pressed:border-accent aria-pressed:text-accent"
        >
          <span aria-hidden>{isFollowing ? "●" : "○"}</span> Follow
        </Button>
      )}
      <Button
        disabled={isAllExpanded === null}
        title={
          isAllExpanded === null
            ? "There are no tool calls or thoughts to expand"
            : `${isAllExpanded ? "Collapse" : "Expand"} all tool calls (e)`
        }
        onClick={() => onExpandAll(!isAllExpanded)}
      >
        {isAllExpanded ? "Collapse all" : "Expand all"}
      </Button>
    </div>
  );
}
