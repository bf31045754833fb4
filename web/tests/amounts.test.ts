import { expect, test } from "vitest";
import { formatBytes, costOf, formatCount, formatMoney, totalTokens } from "../src/views/amounts";

const usage = (input: number) => ({ input, output: 0, cache_read: 0, cache_write: 0, reasoning: 0 });

test.each([
  [null, "cost unknown"],
  [0, "$0"],
  [0.0042, "$0.0042"],
  [0.00004219, "$0.000042"],
  [0.0000000421, "$0.000000042"],
  [0.0099999, "$0.01"],
  [0.01, "$0.01"],
  [0.416, "$0.42"],
  [1.27, "$1.27"],
  [1234.5, "$1234.50"],
])("money: %s is %s", (usd, text) => expect(formatMoney(usd)).toBe(text));

test.each([
  [0, "0"],
  [999, "999"],
  [1_000, "1.0k"],
  [9_999, "10k"],
  [12_300, "12k"],
  [999_499, "999k"],
  [999_500, "1.0M"],
  [4_100_000, "4.1M"],
  [2_300_000_000, "2.3B"],
])("count: %d is %s", (number, text) => expect(formatCount(number)).toBe(text));

test.each([
  [640, "640 B"],
  [12_000, "12 KB"],
  [999_600, "1.0 MB"],
  [4_900_000, "4.9 MB"],
  [3_000_000_000, "3.0 GB"],
])("bytes: %d is %s", (number, text) => expect(formatBytes(number)).toBe(text));

test("reasoning is part of the output, and not counted twice", () => {
  expect(totalTokens({ input: 1, output: 20, cache_read: 300, cache_write: 4_000, reasoning: 15 })).toBe(4_321);
});

test("what a run cost is said where something is known to have been spent", () => {
  const noCost = { usage: usage(0), cost_usd: null, tree_usage: usage(0), tree_cost_usd: null };
  expect(costOf(noCost)).toBeNull();
  expect(costOf({ ...noCost, cost_usd: 0, tree_cost_usd: 0 })).toBeNull();
  expect(costOf({ ...noCost, usage: usage(71), tree_usage: usage(71) })).toEqual({
    short: "71 tokens",
    full: "cost unknown, 71 tokens",
  });
  expect(costOf({ usage: usage(2_000), cost_usd: 0.42, tree_usage: usage(2_000), tree_cost_usd: 0.42 })).toEqual({
    short: "$0.42",
    full: "$0.42, 2.0k tokens",
  });
});

test("what the runs below it cost is said to who asks", () => {
  const run = { usage: usage(2_000), cost_usd: 0.42, tree_usage: usage(5_000), tree_cost_usd: 1.1 };
  expect(costOf(run)).toEqual({ short: "$0.42", full: "$0.42, 2.0k tokens; with sub-runs $1.10, 5.0k tokens" });
  expect(costOf({ ...run, usage: usage(0), cost_usd: null })).toEqual({
    short: "Σ $1.10",
    full: "Sub-runs: $1.10, 5.0k tokens",
  });
});
