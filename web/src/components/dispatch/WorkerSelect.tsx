import { type KeyboardEvent, useId, useState } from "react";
import type { Plugin, ProviderList, Worker } from "@/api";
import { PluginReason, PluginState } from "@/components/plugins/PluginState";
import { Tag } from "@/components/ui/Badge";
import { pluginStateLabel } from "@/views/plugins";
import { unavailableLabel, unavailableReason } from "@/views/providers";

const STORAGE_KEY = "shopfloor.worker";
/** With more workers than this, a search field is shown. */
const SEARCH_THRESHOLD = 12;

/** The worker that was selected last, also in an earlier visit. */
export function useLastWorker(): [string | null, (slug: string) => void] {
  const [slug, setSlug] = useState(() => localStorage.getItem(STORAGE_KEY));
  const select = (next: string) => {
    rememberWorker(next);
    setSlug(next);
  };
  return [slug, select];
}

/** Let the form for the next run begin with this worker. */
export function rememberWorker(slug: string): void {
  localStorage.setItem(STORAGE_KEY, slug);
}

interface WorkerSelectProps {
  workers: readonly Worker[];
  /** A worker for each plugin that accepts tasks. */
  pluginWorkers: readonly Worker[];
  /** The state of the plugins. */
  plugins: readonly Plugin[];
  /** Show the list of plugins. */
  onPlugins: () => void;
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
  pluginWorkers,
  plugins,
  onPlugins,
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
  const hasSearch = workers.length + pluginWorkers.length > SEARCH_THRESHOLD;
  const plugin = selected && pluginWorkers.includes(selected) ? pluginOf(selected, plugins) : undefined;
  const unavailable = selected && providers.includes(selected) ? unavailableReason(selected.slug, providerList) : null;
  return (
    <div className="relative flex flex-col gap-1">
      <label htmlFor={id} className="text-12 font-medium text-text-2">
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
          className="h-8 rounded-2 border border-border-strong bg-bg-pop px-2 text-13"
        />
      )}
      <select
        id={id}
        autoFocus={!hasSearch}
        value={selected?.slug ?? ""}
        disabled={!selected}
        onChange={(event) => onSelect(event.target.value)}
        className="h-8 rounded-2 border border-border-strong bg-bg-pop px-2 text-13 disabled:text-text-3"
      >
        {!selected && <option value="">No worker matches</option>}
        <Group label="Workers" workers={matches.filter((worker) => workers.includes(worker))} />
        <Group
          label="Plugins"
          workers={matches.filter((worker) => pluginWorkers.includes(worker))}
          stateOf={(worker) => pluginStateLabel(pluginOf(worker, plugins))}
        />
        <Group
          label="Agents and models"
          workers={matches.filter((worker) => providers.includes(worker))}
          stateOf={({ slug }) => unavailableLabel(slug, providerList)}
        />
      </select>
      <p role="status" className="sr-only">
        {searchText && (selected ? `${nameOf(selected)} is selected` : "No worker matches")}
      </p>
      {selected?.description && <p className="text-12 text-text-2">{selected.description}</p>}
      {plugin && (
        <div className="flex flex-col gap-1">
          <span className="flex items-center gap-2">
            <Tag>plugin</Tag>
            <PluginState status={plugin.status} />
          </span>
          <PluginReason plugin={plugin} />
        </div>
      )}
      {unavailable !== null && <p className="text-12 break-words text-running-text">{unavailable}</p>}
      {/* Last, because a dialog gives the focus to its first control. */}
      <button
        type="button"
        onClick={onPlugins}
        className="absolute top-0 right-0 text-12 text-accent-text hover:underline"
      >
        All plugins
      </button>
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

const pluginOf = ({ slug }: Worker, plugins: readonly Plugin[]) => plugins.find(({ name }) => name === slug);

interface GroupProps {
  label: string;
  workers: readonly Worker[];
  /** Return what the user has to know before choosing the worker; null if there is nothing. */
  stateOf?: (worker: Worker) => string | null;
}

function Group({ label, workers, stateOf = () => null }: GroupProps) {
  if (workers.length === 0) return null;
  return (
    <optgroup label={label}>
      {workers.map((worker) => {
        const state = stateOf(worker);
        return (
          <option key={worker.slug} value={worker.slug}>
            {nameOf(worker)}
            {state !== null && ` (${state})`}
          </option>
        );
      })}
    </optgroup>
  );
}
