import { describe, expect, test } from "vitest";
import type { Stats, StatsDay, WaitingItem } from "../src/api";
import { axisTicks, sparkline } from "../src/views/charts";
import { filterChips } from "../src/views/filterChips";
import {
  barLabel,
  failedShare,
  filterText,
  formatCents,
  formatDollars,
  formatRange,
  isFailingOften,
  overviewLinks,
  rangeStart,
  spendChart,
  tileTexts,
  workersText,
} from "../src/views/overview";
import { dayBounds, dayStart } from "../src/views/days";
import { overviewParamsOf } from "../src/views/overviewParameters";
import { waitingText } from "../src/views/waiting";

const NOW = Date.parse("2026-11-18T12:00:00Z");
const at = (seconds: number) => new Date(NOW + seconds * 1000).toISOString();

const day = (name: string, model: Record<string, number>, fields: Partial<StatsDay> = {}): StatsDay => ({
  day: name,
  runs: 3,
  failed: 1,
  cost_usd: Object.values(model).reduce((sum, usd) => sum + usd, 0),
  tokens: 0,
  unpriced_tokens: 0,
  by: { model, provider: {}, worker: {} },
  ...fields,
});

describe("the chart", () => {
  test("stacks the series that cost most first, and the rest as one", () => {
    const days = [
      day("2026-11-17", { a: 1, b: 8, c: 3, d: 2, e: 0.5, f: 0.25, free: 0 }),
      day("2026-11-18", { a: 1, f: 0.25 }),
    ];
    const chart = spendChart(days, "model");
    expect(chart.series.map(({ name, total }) => [name, total])).toEqual([
      ["b", 8],
      ["c", 3],
      ["a", 2],
      ["d", 2],
      ["other", 1],
    ]);
    expect(chart.bars[1]?.parts.map(({ series, value }) => [series.name, value])).toEqual([
      ["a", 1],
      ["other", 0.25],
    ]);
    expect(chart.bars.map(({ total }) => total)).toEqual(days.map(({ cost_usd: usd }) => usd));
    expect(chart.average).toBe(8);
  });

  test("five series have a color each; one that is called other is not the rest", () => {
    const chart = spendChart([day("2026-11-18", { other: 5, b: 4, c: 3, d: 2, e: 1 })], "model");
    expect(chart.series.map(({ name, isRest }) => [name, isRest])).toEqual(
      ["other", "b", "c", "d", "e"].map((name) => [name, false]),
    );
    const more = spendChart([day("2026-11-18", { other: 6, b: 5, c: 4, d: 3, e: 2, f: 1 })], "model");
    expect(more.series.map(({ name, total }) => [name, total])).toEqual([
      ["other", 6],
      ["b", 5],
      ["c", 4],
      ["d", 3],
      ["other", 3],
    ]);
    expect(more.bars[0]?.total).toBe(21);
  });

  test("without any cost it has an axis and no series", () => {
    const chart = spendChart([day("2026-11-18", {})], "model");
    expect([chart.series, chart.ticks, chart.average]).toEqual([[], [0, 1], 0]);
    expect(spendChart([], "worker").bars).toEqual([]);
  });

  test("a bar has its numbers as its name", () => {
    const [bar] = spendChart([day("2026-11-06", { opus: 12.9, sonnet: 29.5 })], "model").bars;
    expect(bar && barLabel(bar)).toBe("Fri 6 Nov: $42.40, sonnet $29.50, opus $12.90, 3 runs, 1 failed");
  });
});

test.each([
  [56.6, [0, 20, 40, 60]],
  [60, [0, 20, 40, 60]],
  [3.1, [0, 2, 4]],
  [0.07, [0, 0.05, 0.1]],
  [900, [0, 500, 1000]],
  [0, [0, 1]],
])("an axis up to %d has the marks %j", (highest, ticks) => expect(axisTicks(highest)).toEqual(ticks));

test("a curve stays in its box, and a single value is a point", () => {
  const { last, line } = sparkline([0, 50, 200], { width: 56, height: 20, max: 100 });
  expect(last).toEqual({ x: 53, y: 2 });
  expect(line).toBe("M1 18 L27 10 L53 2");
  expect(sparkline([3], { width: 56, height: 20 })).toMatchObject({ line: "", last: { x: 53 } });
  expect(sparkline([], { width: 56, height: 20 }).last).toBeNull();
  expect(sparkline([0, 0], { width: 56, height: 20 }).last?.y).toBe(18);
});

describe("amounts", () => {
  test("without cents in a chart", () => {
    expect([0, 0.004, 0.25, 2.5, 20, 1234.4].map(formatDollars)).toEqual([
      "$0",
      "<$0.01",
      "$0.25",
      "$2.5",
      "$20",
      "$1,234",
    ]);
  });
  test("with cents elsewhere; an unknown one is no zero", () => {
    expect([null, 0, 0.001, 9.09, 1234.5].map(formatCents)).toEqual(["–", "$0.00", "<$0.01", "$9.09", "$1,234.50"]);
  });
  test("failed calls", () => {
    expect(failedShare({ calls: 412, failed: 25 })).toBe("6.1 %");
    expect(isFailingOften({ calls: 412, failed: 25 })).toBe(true);
    expect(isFailingOften({ calls: 2, failed: 1 })).toBe(false);
  });
  test("workers by name if they are few", () => {
    expect(workersText(["a", "b"])).toBe("a, b");
    expect(workersText(["a", "b", "c", "d"])).toBe("4 workers");
  });
});

describe("time", () => {
  test("a range of days begins with a day", () => {
    expect(rangeStart("24h", NOW)).toBe("2026-11-17T12:00:00.000Z");
    for (const range of ["7d", "14d", "30d"] as const) {
      const start = new Date(rangeStart(range, NOW));
      expect([start.getHours(), start.getMinutes()]).toEqual([0, 0]);
      expect(Math.round((Date.parse(dayStart(NOW)) - start.getTime()) / 86_400_000)).toBe(parseInt(range) - 1);
    }
  });
  test("the bounds of a day are its midnights", () => {
    const { since, until } = dayBounds("2026-11-06");
    expect(new Date(since).getDate()).toBe(6);
    expect(new Date(until).getDate()).toBe(7);
  });
  test("a range names its month once", () => {
    expect(formatRange([day("2026-11-05", {}), day("2026-11-18", {})])).toBe("5 – 18 November");
    expect(formatRange([day("2026-10-31", {}), day("2026-11-13", {})])).toBe("31 October – 13 November");
    expect(formatRange([day("2026-11-18", {})])).toBe("18 November");
    expect(formatRange([])).toBe("");
  });
});

describe("tiles", () => {
  const stats = (tiles: Partial<Stats["tiles"]>): Stats =>
    ({
      tiles: {
        running: 6,
        queued: 0,
        oldest_queued_at: null,
        waiting: 0,
        longest_waiting_since: null,
        failed_today: 0,
        ended_today: 0,
        failed_percent_range: null,
        spent_today_usd: 0,
        unpriced_today: 0,
        ...tiles,
      },
      days: [day("2026-11-17", { a: 40 }), day("2026-11-18", { a: 20 })],
    }) as Stats;
  test("say what is behind the figure", () => {
    expect(
      tileTexts(
        stats({
          queued: 9,
          oldest_queued_at: at(-720),
          waiting: 3,
          longest_waiting_since: at(-2280),
          failed_today: 5,
          ended_today: 63,
          failed_percent_range: 5.06,
        }),
        NOW,
      ),
    ).toEqual({
      running: "9 queued, oldest 12m",
      failed: "of 63 · 7.9 %, usually 5.1 %",
      spent: "$30 a day on average",
    });
  });
  test("say how long the oldest item waits", () => {
    expect(waitingText([{ since: at(-2280) }, { since: at(-5) }] as WaitingItem[], NOW)).toBe("longest 38m");
    expect(waitingText([], NOW)).toBe("nothing waits");
  });
  test("name no usual share where it is that of today", () => {
    const fields = { failed_today: 1, ended_today: 9, failed_percent_range: 11.11 };
    expect(tileTexts(stats(fields), NOW).failed).toBe("of 9 · 11.1 %");
  });
  test("say that there is nothing", () => {
    expect(tileTexts(stats({ unpriced_today: 2 }), NOW)).toEqual({
      running: "none queued",
      failed: "nothing has ended",
      spent: "2 without a price",
    });
  });
});

describe("links", () => {
  const since = "2026-11-05T00:00:00.000Z";
  const links = overviewLinks({ owner: undefined, of: "repair", worker: "chosen", find: "x" }, since, NOW);
  test("lead to the runs behind a number, and keep the filters but not the selected run", () => {
    expect(links.running).toEqual({ of: "repair", flat: true, status: "running" });
    expect(links.failedToday).toEqual({ of: "repair", flat: true, status: "failed", endedSince: dayStart(NOW) });
    expect(links.today).toEqual({ of: "repair", flat: true, endedSince: dayStart(NOW) });
    expect(links.failures).toEqual({ of: "repair", flat: true, status: "failed", endedSince: since });
    expect(links.day("2026-11-06")).toEqual({ of: "repair", flat: true, ...dayBounds("2026-11-06") });
    expect(links.series("opus", "model")).toEqual({ of: "repair", flat: true, model: "opus", since });
    expect(links.series("digest", "worker")).toEqual({ of: "digest", flat: true, since });
  });
  test("a failure leads to the runs of its group", () => {
    const group = {
      code: "timeout",
      group: "after # s",
      message: "",
      total: 1,
      workers: [],
      last_at: at(0),
      per_day: [],
    };
    expect(links.failure(group)).toEqual({
      of: "repair",
      flat: true,
      status: "failed",
      error: "timeout",
      errorGroup: "after # s",
      endedSince: since,
    });
  });
  test("spending without a model has no runs to lead to", () => {
    const { series } = spendChart([day("2026-11-18", { opus: 2, unknown: 1 })], "model");
    expect(series.map(({ name, isFilter }) => [name, isFilter])).toEqual([
      ["opus", true],
      ["unknown", false],
    ]);
  });
});

test("filters in words", () => {
  expect(filterText({ owner: undefined })).toBe("all workers");
  expect(filterText({ owner: undefined, of: "repair", status: "failed", q: "disk full" })).toBe(
    "failed · Worker is repair · “disk full”",
  );
});

describe("filters of a link", () => {
  const text = (address: object) => filterChips({ owner: undefined, ...address }).map((chip) => chip.text);
  test("a day, a time, a model, an error", () => {
    expect(text({ ...dayBounds("2026-11-06") })).toEqual(["Fri 6 Nov"]);
    expect(text({ since: dayBounds("2026-11-06").since, model: "opus", error: "timeout" })).toEqual([
      "since Fri 6 Nov",
      "opus",
      "timeout",
    ]);
    expect(text({ until: dayBounds("2026-11-06").since })).toEqual(["before Fri 6 Nov"]);
    expect(text({ since: "1h" })).toEqual(["Last hour"]);
    expect(text({ endedSince: "7d", until: dayBounds("2026-11-06").since })).toEqual([
      "before Fri 6 Nov",
      "Ended: Last 7 days",
    ]);
    expect(text({ status: "failed", of: "repair" })).toEqual(["Worker is repair"]);
    expect(text({ minCost: 1, maxSeconds: 90 })).toEqual(["Cost at least $1.00", "Duration at most 1m 30s"]);
    expect(text({ minCost: 0.1, maxCost: 1, minSeconds: 3_600 })).toEqual([
      "Cost $0.10 – $1.00",
      "Duration at least 1h",
    ]);
  });
});

test("the address of the overview leaves out what is usual or makes no sense", () => {
  expect(overviewParamsOf({ range: "7d", by: "worker" })).toEqual({ range: "7d", by: "worker" });
  expect(overviewParamsOf({ range: "14d", by: "model" })).toEqual({});
  expect(overviewParamsOf({ range: "1y", by: 3 })).toEqual({});
});
