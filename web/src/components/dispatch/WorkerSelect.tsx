import { type KeyboardEvent, useId, useState } from "react";
import type { ProviderList, Worker } from "@/api";
import { lackOf } from "@/views/providers";

const KEY = "shopfloor.worker";
/** With more workers than this, a search field is shown. */
const MANY = 12;

/** The worker that was selected last, also in an earlier visit. */
export function useLastWorker(): [string | null, (slug: string) => void] {
  const [slug, setSlug] = useState(() => localStorage.getItem(KEY));
  const choose = (next: string) => {
    localStorage.setItem(KEY, next);
    setSlug(next);
  };
  return [slug, choose];
}

interface WorkerSelectProps {
  workers: readonly Worker[];
  /** Agents and models that take a task without a worker definition. */
  providers: readonly Worker[];
  /** The state of the providers; undefined while loading. */
  known: ProviderList | undefined;
  /** The search text, and the workers it matches, best first. */
  words: string;
  found: readonly Worker[];
  onWords: (words: string) => void;
  /** One of `found`; undefined where nothing matches. */
  chosen: Worker | undefined;
  onChoose: (slug: string) => void;
  /** The user has found the worker and continues with its form. */
  onEnter: () => void;
}

export function WorkerSelect({
  workers,
  providers,
  known,
  words,
  found,
  onWords,
  chosen,
  onChoose,
  onEnter,
}: WorkerSelectProps) {
  const id = useId();
  const areMany = workers.length > MANY;
  const lack = chosen && providers.includes(chosen) ? lackOf(chosen.slug, known) : null;
  return (
    <div className="flex flex-col gap-1">
      <label htmlFor={id} className="text-xs font-medium text-ink-dull">
        Worker
      </label>
      {areMany && (
        <input
          type="search"
          // The workers may load after the dialog has opened.
          autoFocus
          aria-label="Find a worker"
          placeholder="Find a worker"
          value={words}
          onChange={(event) => onWords(event.target.value)}
          onKeyDown={(event) => {
            const next = found[steppedFrom(chosen ? found.indexOf(chosen) : -1, event)];
            if (next) onChoose(next.slug);
            else if (!isPlainEnter(event)) return;
            else onEnter();
            event.preventDefault();
          }}
          className="rounded border border-line bg-app px-2 py-1 text-sm"
        />
      )}
      <select
        id={id}
        autoFocus={!areMany}
        value={chosen?.slug ?? ""}
        disabled={!chosen}
        onChange={(event) => onChoose(event.target.value)}
        className="rounded border border-line bg-app px-2 py-1.5 text-sm disabled:text-ink-faint"
      >
        {!chosen && <option value="">No worker matches</option>}
        <Group label="Workers" workers={found.filter((one) => workers.includes(one))} known={undefined} />
        <Group label="Agents and models" workers={found.filter((one) => providers.includes(one))} known={known} />
      </select>
      <p role="status" className="sr-only">
        {words && (chosen ? `${nameOf(chosen)} is chosen` : "No worker matches")}
      </p>
      {chosen?.description && <p className="text-xs text-ink-dull">{chosen.description}</p>}
      {lack !== null && <p className="text-xs break-words text-running">{lack}</p>}
    </div>
  );
}

/** Return the index that an arrow key leads to; -1 for other keys. */
function steppedFrom(at: number, { key }: KeyboardEvent): number {
  return key === "ArrowDown" ? at + 1 : key === "ArrowUp" ? at - 1 : -1;
}

/** Not an Enter that ends a composition of an input method, nor one that submits. */
const isPlainEnter = ({ key, ctrlKey, metaKey, nativeEvent }: KeyboardEvent) =>
  key === "Enter" && !ctrlKey && !metaKey && !nativeEvent.isComposing;

const nameOf = ({ name, slug }: Worker) => (name && name !== slug ? `${name} (${slug})` : slug);

function Group({
  label,
  workers,
  known,
}: {
  label: string;
  workers: readonly Worker[];
  known: ProviderList | undefined;
}) {
  if (workers.length === 0) return null;
  return (
    <optgroup label={label}>
      {workers.map((one) => (
        <option key={one.slug} value={one.slug}>
          {nameOf(one)}
          {lackOf(one.slug, known) !== null && " (not available)"}
        </option>
      ))}
    </optgroup>
  );
}
