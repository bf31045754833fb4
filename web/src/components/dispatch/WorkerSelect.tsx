import { type KeyboardEvent, useId, useState } from "react";
import type { ProviderList, Worker } from "@/api";
import { unavailableReason } from "@/views/providers";

const STORAGE_KEY = "shopfloor.worker";
/** With more workers than this, a search field is shown. */
const SEARCH_THRESHOLD = 12;

/** The worker that was selected last, also in an earlier visit. */
export function useLastWorker(): [string | null, (slug: string) => void] {
  const [slug, setSlug] = useState(() => localStorage.getItem(STORAGE_KEY));
  const select = (next: string) => {
    localStorage.setItem(STORAGE_KEY, next);
    setSlug(next);
  };
  return [slug, select];
}

interface WorkerSelectProps {
  workers: readonly Worker[];
  /** Agents and models that take a task without a worker definition. */
  providers: readonly Worker[];
  /** The state of the providers; undefined while loading. */
  providerList: ProviderList | undefined;
  /** The search text, and the workers it matches, best first. */
  searchText: string;
  matches: readonly Worker[];
  onSearch: (searchText: string) => void;
  /** One of `matches`; undefined if nothing matches. */
  selected: Worker | undefined;
  onSelect: (slug: string) => void;
  /** The user has found the worker and continues with its form. */
  onEnter: () => void;
}

export function WorkerSelect({
  workers,
  providers,
  providerList,
  searchText,
  matches,
  onSearch,
  selected,
  onSelect,
  onEnter,
}: WorkerSelectProps) {
  const id = useId();
  const hasSearch = workers.length > SEARCH_THRESHOLD;
  const unavailable = selected && providers.includes(selected) ? unavailableReason(selected.slug, providerList) : null;
  return (
    <div className="flex flex-col gap-1">
      <label htmlFor={id} className="text-xs font-medium text-ink-dull">
        Worker
      </label>
      {hasSearch && (
        <input
          type="search"
          // The workers may load after the dialog has opened.
          autoFocus
          aria-label="Find a worker"
          placeholder="Find a worker"
          value={searchText}
          onChange={(event) => onSearch(event.target.value)}
          onKeyDown={(event) => {
            const next = matches[indexAfterKey(selected ? matches.indexOf(selected) : -1, event)];
            if (next) onSelect(next.slug);
            else if (!isPlainEnter(event)) return;
            else onEnter();
            event.preventDefault();
          }}
          className="rounded border border-line bg-app px-2 py-1 text-sm"
        />
      )}
      <select
        id={id}
        autoFocus={!hasSearch}
        value={selected?.slug ?? ""}
        disabled={!selected}
        onChange={(event) => onSelect(event.target.value)}
        className="rounded border border-line bg-app px-2 py-1.5 text-sm disabled:text-ink-faint"
      >
        {!selected && <option value="">No worker matches</option>}
        <Group
          label="Workers"
          workers={matches.filter((worker) => workers.includes(worker))}
          providerList={undefined}
        />
        <Group
          label="Agents and models"
          workers={matches.filter((worker) => providers.includes(worker))}
          providerList={providerList}
        />
      </select>
      <p role="status" className="sr-only">
        {searchText && (selected ? `${nameOf(selected)} is selected` : "No worker matches")}
      </p>
      {selected?.description && <p className="text-xs text-ink-dull">{selected.description}</p>}
      {unavailable !== null && <p className="text-xs break-words text-running">{unavailable}</p>}
    </div>
  );
}

/** Return the index that an arrow key leads to; -1 for other keys. */
function indexAfterKey(index: number, { key }: KeyboardEvent): number {
  return key === "ArrowDown" ? index + 1 : key === "ArrowUp" ? index - 1 : -1;
}

/** Not an Enter that ends a composition of an input method, nor one that submits. */
const isPlainEnter = ({ key, ctrlKey, metaKey, nativeEvent }: KeyboardEvent) =>
  key === "Enter" && !ctrlKey && !metaKey && !nativeEvent.isComposing;

const nameOf = ({ name, slug }: Worker) => (name && name !== slug ? `${name} (${slug})` : slug);

function Group({
  label,
  workers,
  providerList,
}: {
  label: string;
  workers: readonly Worker[];
  providerList: ProviderList | undefined;
}) {
  if (workers.length === 0) return null;
  return (
    <optgroup label={label}>
      {workers.map((worker) => (
        <option key={worker.slug} value={worker.slug}>
          {nameOf(worker)}
          {unavailableReason(worker.slug, providerList) !== null && " (not available)"}
        </option>
      ))}
    </optgroup>
  );
}
