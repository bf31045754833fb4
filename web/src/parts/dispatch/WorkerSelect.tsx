import { useId, useState } from "react";
import type { ProviderList, Worker } from "@/api";
import { lackOf } from "@/views/providers";

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
  /** What is known of the providers; undefined while nothing is. */
  known: ProviderList | undefined;
  chosen: Worker;
  onChoose: (slug: string) => void;
}

export function WorkerSelect({ workers, providers, known, chosen, onChoose }: WorkerSelectProps) {
  const id = useId();
  const [words, setWords] = useState("");
  const lack = providers.includes(chosen) ? lackOf(chosen.slug, known) : null;
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
        <Group label="Workers" workers={workers.filter(shown)} known={undefined} />
        <Group label="Agents and models" workers={providers.filter(shown)} known={known} />
      </select>
      {chosen.description && <p className="text-xs text-ink-dull">{chosen.description}</p>}
      {lack !== null && <p className="text-xs break-words text-running">{lack}</p>}
    </div>
  );
}

function Group({ label, workers, known }: { label: string; workers: readonly Worker[]; known: ProviderList | undefined }) {
  if (workers.length === 0) return null;
  return (
    <optgroup label={label}>
      {workers.map((one) => (
        <option key={one.slug} value={one.slug}>
          {one.name && one.name !== one.slug ? `${one.name} (${one.slug})` : one.slug}
          {lackOf(one.slug, known) !== null && " (not available)"}
        </option>
      ))}
    </optgroup>
  );
}

function matches(worker: Worker, words: string): boolean {
  const text = `${worker.slug} ${worker.name ?? ""} ${worker.description ?? ""}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}
