/** Texts and states in the header of a run. */
import type { Run, RunDetail, Status, Usage } from "@/api";
import { count, money, tokens } from "./amounts";
import { asText, oneLine, parsed } from "./json";
import { WHOLE_CHARS } from "./textLimits";

const GOES_ON: ReadonlySet<Status> = new Set(["queued", "running", "waiting"]);

/** Whether a run has not ended yet. */
export const goesOn = (status: Status) => GOES_ON.has(status);

/** Return why a run was cancelled; null where it was not. */
export const cancelReason = (run: Pick<RunDetail, "status" | "error">): string | null =>
  run.status === "cancelled" ? (run.error?.message ?? "") : null;

/** Whether an error only reports a cancellation, of the run or because another branch failed. */
export const isOfCancel = (reason: string | null, error: unknown, code?: unknown): boolean =>
  code === "cancelled" || (reason !== null && error === reason);

/** Return the title of the browser tab. */
export const titleOf = (run: Run | RunDetail) => `${run.status} · ${oneLine(run.task || run.name, 120)} · Shopfloor`;

const WAITED_FOR: Record<string, string> = {
  client_tool: "a tool's result",
  question: "an answer",
  approval: "an approval",
  rate_limit: "the rate limit",
  definition_changed: "its definition, which changed",
  run: "a sub-run",
};

/** Say what a run waits for: `waits for an answer, a sub-run`; null where it waits for nothing. */
export function waitWords(kinds: readonly string[] | null): string | null {
  if (!kinds?.length) return null;
  return `waits for ${kinds.map((kind) => WAITED_FOR[kind] ?? kind.replaceAll("_", " ")).join(", ")}`;
}

/** Format the cost: `$0.12, with sub-runs $0.34`; null where no price is known, since the tokens are shown then. */
export function costWords(run: RunDetail): string | null {
  const own = run.cost_usd === null ? null : money(run.cost_usd);
  if (run.children === 0) return own;
  const tree = run.tree_cost_usd === null ? null : `with sub-runs ${money(run.tree_cost_usd)}`;
  return own !== null && tree !== null ? `${own}, ${tree}` : (own ?? tree);
}

/**
 * Format the tokens: `12.3k tokens`; null where there are none. Where only sub-runs used tokens at an unknown price,
 * `with sub-runs 12.3k tokens`.
 */
export function tokenWords(run: RunDetail): string | null {
  const own = tokens(run.usage);
  const all = own || (run.tree_cost_usd === null ? tokens(run.tree_usage) : 0);
  return all === 0 ? null : `${own === 0 ? "with sub-runs " : ""}${count(all)} ${all === 1 ? "token" : "tokens"}`;
}

const CLASSES: readonly [keyof Usage, string][] = [
  ["input", "input"],
  ["output", "output"],
  ["cache_read", "read from the cache"],
  ["cache_write", "written to the cache"],
  ["reasoning", "reasoning (part of output)"],
];

/** List the tokens by class, one per line, and whether their price is unknown. */
export function usageWords(run: RunDetail): string {
  const [usage, usd] = tokens(run.usage) === 0 ? [run.tree_usage, run.tree_cost_usd] : [run.usage, run.cost_usd];
  const lines = CLASSES.filter(([one]) => usage[one] > 0).map(
    ([one, name]) => `${usage[one].toLocaleString("en")} ${name}`,
  );
  return [...lines, ...(usd === null ? [money(null)] : [])].join("\n");
}

export interface Shown {
  /** As Markdown, or as a terminal would show it. */
  readonly as: "text" | "markdown";
  readonly text: string;
}

/** Decide how to show a result: JSON indented, command output and very long text as it is, the rest as Markdown. */
export function resultOf(result: string, kind: string): Shown {
  const value = parsed(result);
  if (value !== undefined) return { as: "text", text: asText(value) };
  return { as: kind === "command" || result.length > WHOLE_CHARS ? "text" : "markdown", text: result };
}
