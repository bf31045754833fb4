/** The parameters of the overview's address: the range that it covers, and how its chart is stacked. */

export const RANGES = ["24h", "7d", "14d", "30d"] as const;
export type Range = (typeof RANGES)[number];
export const DEFAULT_RANGE: Range = "14d";

export const STACKS = ["model", "provider", "worker"] as const;
export type Stack = (typeof STACKS)[number];

export interface OverviewParams {
  range?: Range;
  by?: Stack;
}

/** Return the valid parameters; defaults and others are left out, so that an address has one spelling. */
export function overviewParamsOf(raw: Record<string, unknown>): OverviewParams {
  const range = RANGES.find((candidate) => candidate === raw.range && candidate !== DEFAULT_RANGE);
  const by = STACKS.find((candidate) => candidate === raw.by && candidate !== STACKS[0]);
  return { ...(range && { range }), ...(by && { by }) };
}
