/** Money, tokens and bytes as text. */
import type { Run, Usage } from "@/api";

/** Format a price: `$0.0042`, `$1.27`; null is an unknown price. */
export function formatMoney(usd: number | null): string {
  if (usd === null) return "cost unknown";
  if (usd === 0) return "$0";
  // Two significant digits, however small the amount is.
  return `$${usd >= 0.00995 ? usd.toFixed(2) : usd.toFixed(Math.min(20, 1 - Math.floor(Math.log10(usd))))}`;
}

/** Format a count: `950`, `1.2k`, `12k`, `4.1M`. */
export function formatCount(number: number): string {
  if (number < 1_000) return String(number);
  if (number < 999_500) return `${(number / 1_000).toFixed(number < 9_950 ? 1 : 0)}k`;
  if (number < 999_950_000) return `${(number / 1_000_000).toFixed(1)}M`;
  return `${(number / 1_000_000_000).toFixed(1)}B`;
}

export const totalTokens = (usage: Usage) => usage.input + usage.output + usage.cache_read + usage.cache_write;

/** The shares of the tokens that were read from the cache, other input, and output; each from 0 to 1. */
export function tokenShares(usage: Usage): { cached: number; fresh: number; output: number } {
  const total = Math.max(1, totalTokens(usage));
  return {
    cached: usage.cache_read / total,
    fresh: (usage.input + usage.cache_write) / total,
    output: usage.output / total,
  };
}

/** Format a size: `640 B`, `12 KB`, `4.9 MB`. */
export function formatBytes(number: number): string {
  if (number < 1_000) return `${number} B`;
  if (number < 999_500) return `${Math.round(number / 1_000)} KB`;
  if (number < 999_950_000) return `${(number / 1_000_000).toFixed(1)} MB`;
  return `${(number / 1_000_000_000).toFixed(1)} GB`;
}

/**
 * Return the cost of a run for a card, in short and in full. For a run that spent nothing itself, the cost of its
 * sub-runs. Null if no cost is known.
 */
export function costOf(
  run: Pick<Run, "usage" | "cost_usd" | "tree_usage" | "tree_cost_usd">,
): { short: string; full: string } | null {
  const own = costTexts(run.cost_usd, run.usage);
  const tree = costTexts(run.tree_cost_usd, run.tree_usage);
  if (!own) return tree && { short: `Σ ${tree.short}`, full: `Sub-runs: ${tree.full}` };
  return !tree || tree.full === own.full ? own : { short: own.short, full: `${own.full}; with sub-runs ${tree.full}` };
}

function costTexts(usd: number | null, usage: Usage): { short: string; full: string } | null {
  const tokens = totalTokens(usage);
  if (!usd && !tokens) return null;
  return {
    short: usd === null ? `${formatCount(tokens)} tokens` : formatMoney(usd),
    full: `${formatMoney(usd)}, ${formatCount(tokens)} tokens`,
  };
}
