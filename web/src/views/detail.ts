/** Texts and states in the header of a run. */
import type { Client, Run, RunDetail, Status, Usage } from "@/api";
import { formatMoney, totalTokens } from "./amounts";
import { activityText } from "./activity";
import { asText, oneLine, parseJson } from "./json";
import { MAX_FULL_CHARS } from "./textLimits";

const ACTIVE_STATUSES: ReadonlySet<Status> = new Set(["queued", "running", "waiting"]);

/** Whether a run has not ended yet. */
export const isActive = (status: Status) => ACTIVE_STATUSES.has(status);

/** Return why a run was cancelled; null if it was not. */
export const cancelReason = (run: Pick<RunDetail, "status" | "error">): string | null =>
  run.status === "cancelled" ? (run.error?.message ?? "") : null;

/** Whether an error only reports a cancellation, of the run or because another branch failed. */
export const isCancellation = (reason: string | null, error: unknown, code?: unknown): boolean =>
  code === "cancelled" || (reason !== null && error === reason);

/** Return the title of the browser tab. */
export const titleOf = (run: Run | RunDetail) => `${run.status} · ${oneLine(run.task || run.name, 120)} · Shopfloor`;

const WAIT_LABELS: Record<string, string> = {
  client_tool: "a tool's result",
  question: "an answer",
  approval: "an approval",
  rate_limit: "the rate limit",
  definition_changed: "a changed definition",
  run: "a sub-run",
};

/** Say what a run waits for: `waits for an answer, a sub-run`; null if it waits for nothing. */
export function waitText(kinds: readonly string[] | null): string | null {
  if (!kinds?.length) return null;
  return `waits for ${kinds.map((kind) => WAIT_LABELS[kind] ?? kind.replaceAll("_", " ")).join(", ")}`;
}

/** Say what an active run does or waits for, after its status. */
export function activityOf(run: RunDetail): string {
  if (run.status === "queued") return run.queue_reason ?? "Waits for a free slot";
  if (run.status === "waiting") return waitText(run.waits_for)?.replace(/^waits /, "") ?? "";
  return run.queue_reason ?? run.summary ?? activityText(run) ?? "";
}

/** Format the program that dispatched a run: `claude-code 2.1.0`. */
export const clientText = (client: Client): string => [client.name, client.version].filter(Boolean).join(" ");

const TOKEN_CLASSES: readonly [keyof Usage, string][] = [
  ["input", "input"],
  ["output", "output"],
  ["cache_read", "read from the cache"],
  ["cache_write", "written to the cache"],
  ["reasoning", "reasoning (part of output)"],
];

/** List the tokens by class, one per line, and whether their price is unknown. */
export function usageText(run: RunDetail): string {
  const [usage, usd] = totalTokens(run.usage) === 0 ? [run.tree_usage, run.tree_cost_usd] : [run.usage, run.cost_usd];
  const lines = TOKEN_CLASSES.filter(([tokenClass]) => usage[tokenClass] > 0).map(
    ([tokenClass, name]) => `${usage[tokenClass].toLocaleString("en")} ${name}`,
  );
  return [...lines, ...(usd === null ? [formatMoney(null)] : [])].join("\n");
}

export interface ResultView {
  /** As Markdown, or as a terminal would show it. */
  readonly as: "text" | "markdown";
  readonly text: string;
}

/** Decide how to show a result: JSON indented, command output and very long text as it is, the rest as Markdown. */
export function viewOfResult(result: string, kind: string): ResultView {
  const value = parseJson(result);
  if (value !== undefined) return { as: "text", text: asText(value) };
  return { as: kind === "command" || result.length > MAX_FULL_CHARS ? "text" : "markdown", text: result };
}
