/** Options of the filters, and the search for a worker. */
import type { Channel, Run, Worker } from "@/api";

export interface FilterOption {
  readonly value: string;
  readonly label: string;
}

interface WorkerCatalog {
  readonly workers: readonly Worker[];
}

/** Return the known workers and the names of all other runs seen: commands, agents, workers that were removed. */
export function workerOptions(
  catalog: WorkerCatalog | undefined,
  seenRuns: readonly Run[],
  selected: string | undefined,
): FilterOption[] {
  const names = new Set([...(catalog?.workers ?? []).map((a) => a.slug), ...seenRuns.map((run) => run.name)]);
  if (selected !== undefined) names.add(selected);
  return [...names].sort((a, b) => a.localeCompare(b)).map((name) => ({ value: name, label: name }));
}

/** Return the workers that match all words; workers whose name matches come before those whose description does. */
export function findWorkers(workers: readonly Worker[], searchText: string): Worker[] {
  const words = searchText.toLowerCase().split(/\s+/);
  const matches = (text: string) => words.every((word) => text.toLowerCase().includes(word));
  const matchesName = (a: Worker) => matches(`${a.slug} ${a.name ?? ""}`);
  const found = workers.filter((a) => matches(`${a.slug} ${a.name ?? ""} ${a.description ?? ""}`));
  return [...found.filter(matchesName), ...found.filter((a) => !matchesName(a))];
}

export function channelOptions(
  catalog: readonly Channel[] | undefined,
  seenRuns: readonly Run[],
  selected: string | undefined,
): FilterOption[] {
  const labels = new Map<string, string>();
  if (selected !== undefined) labels.set(selected, selected);
  for (const run of seenRuns)
    if (run.channel_id !== null) labels.set(run.channel_id, run.channel_name ?? run.channel_id);
  for (const a of catalog ?? []) labels.set(a.id, a.name ?? a.id);
  return [...labels].map(([value, label]) => ({ value, label })).sort((a, b) => a.label.localeCompare(b.label));
}

const numberFormat = new Intl.NumberFormat("en");

export const totalText = (total: number): string => `${numberFormat.format(total)} ${total === 1 ? "run" : "runs"}`;
