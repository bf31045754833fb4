import { useId, useState } from "react";
import type { Worker } from "@/api";

const KEY = "shopfloor.worker";
/** More than this are not looked through by eye. */
const MANY = 12;

/** The worker that was chosen last, also by an earlier visit. */
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
  /** What a task can be handed to as it is. */
  providers: readonly Worker[];
  /** Those of the providers that are there; undefined while it is not known. */
  usable: readonly string[] | undefined;
  chosen: Worker;
  onChoose: (slug: string) => void;
}

export function WorkerSelect({ workers, providers, usable, chosen, onChoose }: WorkerSelectProps) {
  const id = useId();
  const [words, setWords] = useState("");
  const isThere = (provider: Worker) => usable?.includes(provider.slug) ?? true;
  const shown = (one: Worker) => one.slug === chosen.slug || matches(one, words);
  return (
    <div className="flex flex-col gap-1">
      <label htmlFor={id} className="text-xs font-medium text-ink-dull">
        Worker
      </label>
      {workers.length > MANY && (
        <input
          type="search"
          aria-label="Find a worker"
          placeholder="Find a worker"
          value={words}
          onChange={(event) => setWords(event.target.value)}
          className="rounded border border-line bg-app px-2 py-1 text-sm"
        />
      )}
      <select id={id} value={chosen.slug} onChange={(event) => onChoose(event.target.value)} className="rounded border border-line bg-app px-2 py-1.5 text-sm">
        <Group label="Workers" workers={workers.filter(shown)} isThere={() => true} />
        <Group label="Agents and models" workers={providers.filter(shown)} isThere={isThere} />
      </select>
      {chosen.description && <p className="text-xs text-ink-dull">{chosen.description}</p>}
      {providers.includes(chosen) && !isThere(chosen) && (
        <p className="text-xs text-running">It cannot be used on the server's machine yet: `shopfloor providers` says what is missing.</p>
      )}
    </div>
  );
}

function Group({ label, workers, isThere }: { label: string; workers: readonly Worker[]; isThere: (worker: Worker) => boolean }) {
  if (workers.length === 0) return null;
  return (
    <optgroup label={label}>
      {workers.map((one) => (
        <option key={one.slug} value={one.slug}>
          {one.name && one.name !== one.slug ? `${one.name} (${one.slug})` : one.slug}
          {!isThere(one) && " (not available)"}
        </option>
      ))}
    </optgroup>
  );
}

function matches(worker: Worker, words: string): boolean {
  const text = `${worker.slug} ${worker.name ?? ""} ${worker.description ?? ""}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
