/** Plugins as the list of plugins and the form for a new run show them. */
import type { Plugin, Worker } from "@/api";

export const STATE_LABELS: Readonly<Record<Plugin["status"], string>> = {
  ready: "ready",
  starting: "starting",
  stopped: "stopped",
  error: "error",
  not_allowed: "not allowed",
};

/** Return the state of a plugin that the user has to know before a run; null if a run can start. */
export function pluginStateLabel(plugin: Plugin | undefined): string | null {
  return plugin && plugin.status !== "ready" && plugin.status !== "stopped" ? STATE_LABELS[plugin.status] : null;
}

const WORKER = "worker";

export const acceptsTasks = (plugin: Plugin) => plugin.capabilities?.includes(WORKER) ?? false;

export const titleOfPlugin = ({ display_name: title, name }: Plugin) => title || name;

/**
 * Return a worker for each plugin that accepts tasks. A plugin that cannot be used is not among the server's workers; it
 * gets a worker without inputs, so that the user sees why.
 */
export function pluginWorkers(workers: readonly Worker[], plugins: readonly Plugin[]): Worker[] {
  const usable = workers.filter(isPluginWorker);
  // Another worker may have the name of a plugin, and precedes it.
  const slugs = new Set(workers.map(({ slug }) => slug));
  return [
    ...usable,
    ...plugins.filter((plugin) => acceptsTasks(plugin) && !slugs.has(plugin.name)).map(unusableWorker),
  ];
}

export const isPluginWorker = ({ worker_type: type }: Worker) => type === "plugin";

function unusableWorker(plugin: Plugin): Worker {
  return {
    slug: plugin.name,
    project: null,
    name: plugin.display_name || null,
    description: plugin.description || null,
    worker_type: "plugin",
    input_schema: {},
    tools: [],
    client_tools: [],
  };
}

/** A piece of a message: plain text, or what the message has in backquotes. */
export interface MessagePart {
  readonly text: string;
  readonly isCode: boolean;
}

export const messageParts = (message: string): MessagePart[] =>
  message
    .split(/`([^`]+)`/)
    .map((text, index) => ({ text, isCode: index % 2 === 1 }))
    .filter(({ text }) => text !== "");

/** Say in a few words why a plugin is in its state; null if its state needs no words. */
export function stateReason({ status, error }: Plugin): string | null {
  if (error) return error;
  if (status === "starting") return "It is starting. A run waits until it is ready.";
  return status === "stopped" ? "It starts when a run needs it." : null;
}
