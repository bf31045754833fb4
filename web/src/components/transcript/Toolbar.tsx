import clsx from "clsx";
import type { RefObject } from "react";
import { Button } from "@/components/ui/Button";
import { Icon } from "@/components/ui/Icon";
import type { TranscriptSearch } from "./useTranscriptSearch";
import { SearchBar } from "./SearchBar";

interface Props {
  search: TranscriptSearch;
  fieldRef: RefObject<HTMLInputElement | null>;
  searchText: string;
  onSearchText: (searchText: string) => void;
  /** Null if the log was complete at first. */
  isFollowing: boolean | null;
  /** Whether the run may add events. If it no longer does, the button keeps its place. */
  canFollow: boolean;
  onFollow: (isFollowing: boolean) => void;
  /** Whether all expandable rows are expanded; null if there are none. */
  isAllExpanded: boolean | null;
  onExpandAll: (open: boolean) => void;
  /** A short message. */
  message: string | null;
}

export function Toolbar({
  search,
  fieldRef,
  searchText,
  onSearchText,
  isFollowing,
  canFollow,
  onFollow,
  isAllExpanded,
  onExpandAll,
  message,
}: Props) {
  return (
    <div className="flex min-w-0 flex-1 items-center justify-end gap-1">
      <span aria-live="polite" className="shrink-0 text-12 text-text-3">
        {message}
      </span>
      <SearchBar search={search} fieldRef={fieldRef} text={searchText} onText={onSearchText} />
      <Button
        variant="ghost"
        aria-label={isAllExpanded ? "Collapse all" : "Expand all"}
        className="max-sm:px-1.5"
        disabled={isAllExpanded === null}
        title={
          isAllExpanded === null
            ? "There are no tool calls or thoughts to expand"
            : `${isAllExpanded ? "Collapse" : "Expand"} all tool calls (e)`
        }
        onClick={() => onExpandAll(!isAllExpanded)}
      >
        <Icon name="expand" className="text-icon sm:hidden" />
        <span className="max-sm:hidden">{isAllExpanded ? "Collapse all" : "Expand all"}</span>
      </Button>
      {isFollowing !== null && (
        <Button
          variant="ghost"
          aria-label="Follow"
          aria-pressed={isFollowing}
          title="Follow new events (f)"
          onClick={() => onFollow(!isFollowing)}
          className={clsx("aria-pressed:text-accent-text!", !canFollow && "invisible")}
        >
          <Icon name="down" className="size-3.5" />
          <span className="max-sm:hidden">Follow</span>
        </Button>
      )}
    </div>
  );
}
