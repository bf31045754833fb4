import { describe, expect, test } from "vitest";
import { formatAgo, formatClock, formatDateTime, formatDuration, formatIn } from "../src/views/time";

const NOW = Date.parse("2026-03-01T12:00:00.000Z");
const before = (seconds: number) => new Date(NOW - seconds * 1_000).toISOString();

describe("how long ago", () => {
  test.each([
    [0, "just now"],
    [59, "just now"],
    [60, "1m ago"],
    [150, "2m ago"],
    [3_599, "59m ago"],
    [3_600, "1h ago"],
    [86_399, "23h ago"],
    [86_400, "1d ago"],
    [2_592_000, "1mo ago"],
    [31_536_000, "1y ago"],
  ])("%d s: %s", (seconds, text) => expect(formatAgo(before(seconds), NOW)).toBe(text));

  test("a clock that is ahead of ours makes no future of it", () =>
    expect(formatAgo(before(-30), NOW)).toBe("just now"));
});

describe("when it happens", () => {
  test.each([
    [-5, "now"],
    [0, "now"],
    [20, "in less than a minute"],
    [60, "in 1m"],
    [86_399, "in 23h"],
    [86_400, "in 1d"],
  ])("%d s: %s", (seconds, text) => expect(formatIn(before(-seconds), NOW)).toBe(text));
});

describe("how long it took", () => {
  test.each([
    [0, "0 ms"],
    [-5, "0 ms"],
    [41.6, "42 ms"],
    [99, "99 ms"],
    [690, "0.7 s"],
    [999, "1.0 s"],
    [1_000, "1.0 s"],
    [4_249, "4.2 s"],
    [59_949, "59.9 s"],
    [59_950, "1m 0s"],
    [105_000, "1m 45s"],
    [3_599_499, "59m 59s"],
    [3_599_500, "1h 0m"],
    [7_380_000, "2h 3m"],
    [86_399_000, "23h 59m"],
    [86_400_000, "1d 0h"],
    [273_600_000, "3d 4h"],
  ])("%d ms: %s", (ms, text) => expect(formatDuration(ms)).toBe(text));

  test("less than a millisecond under a second is not 1000 ms", () => expect(formatDuration(999.7)).toBe("1.0 s"));
});

test("the exact time and the time of day are in the reader's zone", () => {
  const at = "2026-03-01T12:34:56.000Z";
  const here = new Date(at);
  expect(formatClock(at)).toContain(String(here.getHours()).padStart(2, "0"));
  expect(formatClock(at)).toContain("34");
  expect(formatDateTime(at)).toContain("2026");
});
