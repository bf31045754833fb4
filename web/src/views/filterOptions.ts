/** Options of the filters, and the search for a worker. */
import type { Channel, Run, Worker } from "@/api";

export interface Choice {
  readonly value: string;
  readonly label: string;
}

interface Catalogue {
  readonly workers: readonly Worker[];
}

/** Return the known workers and the names of all other runs seen: commands, agents, workers that were removed. */
export function workerChoices(
  known: Catalogue | undefined,
  seen: readonly Run[],
  chosen: string | undefined,
): Choice[] {
  const names = new Set([...(known?.workers ?? []).map((one) => one.slug), ...seen.map((run) => run.name)]);
  if (chosen !== undefined) names.add(chosen);
  return [...names].sort((one, other) => one.localeCompare(other)).map((name) => ({ value: name, label: name }));
}

/** Return the workers that match all words; workers whose name matches come before those whose description does. */
export function matching(workers: readonly Worker[], words: string): Worker[] {
  const wanted = words.toLowerCase().split(/\s+/);
  const has = (text: string) => wanted.every((word) => text.toLowerCase().includes(word));
  const isNamed = (one: Worker) => has(`${one.slug} ${one.name ?? ""}`);
  const found = workers.filter((one) => has(`${one.slug} ${one.name ?? ""} ${one.description ?? ""}`));
  return [...found.filter(isNamed), ...found.filter((one) => !isNamed(one))];
}

export function channelChoices(
  known: readonly Channel[] | undefined,
  seen: readonly Run[],
  chosen: string | undefined,
): Choice[] {
  const labels = new Map<string, string>();
  if (chosen !== undefined) labels.set(chosen, chosen);
  for (const run of seen) if (run.channel_id !== null) labels.set(run.channel_id, run.channel_name ?? run.channel_id);
  for (const one of known ?? []) labels.set(one.id, one.name ?? one.id);
  return [...labels]
    .map(([value, label]) => ({ value, label }))
    .sort((one, other) => one.label.localeCompare(other.label));
}

const grouped = new Intl.NumberFormat("en");

export const totalText = (total: number): string => `${grouped.format(total)} ${total === 1 ? "run" : "runs"}`;
