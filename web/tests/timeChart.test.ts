import { describe, expect, it } from "vitest";
import type { Span, Spans } from "@/api";
import { barName, chartOf, endingOf, isWait, lanesOf } from "@/views/timeChart";

const BEGAN = Date.parse("2026-11-15T10:00:00.000Z");
const at = (ms: number) => new Date(BEGAN + ms).toISOString();
let seq = 1;

/** A span from and to, in milliseconds from the start of the run; open where `to` is null. */
function span(
  kind: Span["kind"],
  name: string,
  path: string,
  from: number,
  to: number | null,
  more: Partial<Span> = {},
): Span {
  seq += 1;
  return {
    seq,
    end_seq: to === null ? null : seq + 1000,
    kind,
    name,
    path,
    started_at: at(from),
    ended_at: to === null ? null : at(to),
    duration_ms: to === null ? null : to - from,
    error: false,
    child_run_id: null,
    count: 1,
    ...more,
  };
}
const step = (path: string, from: number, to: number | null) => span("step", path, path, from, to);
const tool = (name: string, path: string, from: number, to: number | null) => span("tool", name, path, from, to);
const wait = (name: string, path: string, from: number, to: number | null) =>
  span("tool", name, path, from, to, { waits: true });

const of = (spans: Span[], ended: number | null): Spans => ({
  spans,
  last_seq: seq,
  started_at: at(0),
  ended_at: ended === null ? null : at(ended),
  files_changed: 0,
  lines_added: 0,
  lines_removed: 0,
  calls_failed: 0,
  context_tokens: null,
});
const chart = (spans: Span[], ended: number | null, now: number | null = null, waits = false) =>
  chartOf(lanesOf(of(spans, ended)), now === null ? null : BEGAN + now, waits);
const lanes = (spans: Span[], ended: number | null) => chart(spans, ended).bars.map((bar) => bar.lane);

describe("lanes", () => {
  it("puts what follows into the same lane", () => {
    expect(lanes([step("a", 0, 10), step("b", 10, 20), step("c", 25, 30)], 30)).toEqual([0, 0, 0]);
  });

  it("puts what overlaps below each other, and goes up again where there is room", () => {
    expect(lanes([step("a", 0, 10), step("b", 5, 15), step("c", 8, 20), step("d", 11, 20)], 20)).toEqual([0, 1, 2, 0]);
  });

  it("puts tools below the step that calls them, and steps below the one around them", () => {
    const spans = [
      step("checks", 0, 100),
      step("checks.lint.run", 1, 50),
      tool("Bash", "checks.lint.run", 2, 20),
      tool("Read", "checks.lint.run", 10, 30),
    ];
    expect(lanes(spans, 100)).toEqual([0, 1, 2, 3]);
  });

  it("keeps what is inside one branch together, apart from the other branch", () => {
    const spans = [
      step("both", 0, 100),
      step("both.a.x", 0, 90),
      step("both.b.y", 0, 90),
      tool("one", "both.a.x", 10, 20),
      tool("two", "both.b.y", 10, 20),
    ];
    expect(lanes(spans, 100)).toEqual([0, 1, 3, 2, 4]);
  });

  it("puts what is deep inside one lane below each that it is inside of", () => {
    const spans = [step("a", 0, 9), step("a.b", 0, 9), step("a.b.c", 0, 9), tool("t", "a.b.c", 0, 9)];
    expect(lanes(spans, 9)).toEqual([0, 1, 2, 3]);
    expect(lanes([step("z", 0, 9), ...spans], 9)).toEqual([0, 1, 2, 3, 4]);
  });

  it("takes a retry for what follows the first try", () => {
    expect(lanes([step("flaky", 0, 10), step("flaky", 20, 30)], 30)).toEqual([0, 0]);
  });

  it("shows tools of no step, and those of a step that was left out", () => {
    expect(lanes([tool("ask", "ask", 0, 10), tool("Bash", "gone.step", 10, 20)], 20)).toEqual([0, 0]);
  });

  it("does not hang what comes later below a step that has ended", () => {
    const spans = [step("a", 0, 10), tool("late", "a", 20, 30)];
    expect(lanes(spans, 30)).toEqual([0, 0]);
  });

  it("leaves a lane to what has not ended", () => {
    const result = chart([step("a", 0, null), step("b", 5, 10), step("c", 11, null)], null, 20);
    expect(result.bars.map((bar) => bar.lane)).toEqual([0, 1, 1]);
    expect(result.lanes).toBe(2);
  });

  it("is not thrown by agents whose clock is behind that of the run", () => {
    const result = chart(
      [step("agent", 1000, 1000), tool("Bash", "agent", 0, 400), tool("Read", "agent", 400, 500)],
      1000,
    );
    expect(result.bars.map((bar) => bar.lane)).toEqual([0, 1, 1]);
    expect(result.bars[1]).toMatchObject({ from: 0, to: 0.4 });
  });
});

describe("places", () => {
  it("are true to scale where nothing idles", () => {
    const result = chart([step("a", 0, 250), step("b", 250, 1000)], 1000);
    expect(result.bars.map(({ from, to }) => [from, to])).toEqual([
      [0, 0.25],
      [0.25, 1],
    ]);
    expect(result.breaks).toEqual([]);
    expect(result.ms).toBe(1000);
  });

  it("has a place for what took no time", () => {
    const result = chart([step("a", 0, 500), step("b", 500, 500), step("c", 500, 1000)], 1000);
    expect(result.bars[1]).toMatchObject({ from: 0.5, to: 0.5, ms: 0, lane: 0 });
  });

  it("has one for a run that took no time at all, and for one without spans", () => {
    expect(chart([step("a", 0, 0)], 0).bars[0]).toMatchObject({ from: 0, ms: 0 });
    expect(chart([], 1000)).toMatchObject({ bars: [], lanes: 0, ms: 1000 });
    expect(chartOf(lanesOf({ ...of([], null), started_at: null }), null, false).ms).toBe(0);
  });

  it("draws what is open up to now, and up to the end where there is one", () => {
    expect(chart([step("a", 0, null)], null, 4000).bars[0]).toMatchObject({ from: 0, to: 1, ms: 4000, isOpen: true });
    expect(chart([step("a", 0, null)], 2000, 9000).bars[0]).toMatchObject({ to: 1, ms: 2000, isOpen: true });
    // The run is not active and has no end: the last known time is the end.
    expect(chart([step("a", 0, null), step("b", 0, 700)], null).bars[0]).toMatchObject({ to: 1, ms: 700 });
  });

  it("says how long by the clock that is never set back", () => {
    const result = chart([span("tool", "Bash", "x", 100, 50, { duration_ms: 320 })], 1000);
    expect(result.bars[0]).toMatchObject({ ms: 320 });
    expect(result.bars[0]?.to).toBe(result.bars[0]?.from);
  });
});

describe("idle gaps", () => {
  it("are compressed and told with their length", () => {
    const result = chart([step("a", 0, 1000), step("b", 3_600_000, 3_601_000)], 3_601_000);
    expect(result.breaks).toHaveLength(1);
    expect(result.breaks[0]?.ms).toBe(3_599_000);
    const [a, b] = result.bars;
    expect(a?.to).toBeCloseTo(0.465);
    expect(b?.from).toBeCloseTo(0.535);
    expect(b?.to).toBeCloseTo(1);
    expect([result.breaks[0]?.from, result.breaks[0]?.to]).toEqual([a?.to, b?.from]);
  });

  it("are left as they are where they are short, or short beside the rest", () => {
    expect(chart([step("a", 0, 100), step("b", 4_000, 4_100)], 4_100).breaks).toEqual([]);
    expect(chart([step("a", 0, 100_000), step("b", 109_000, 200_000)], 200_000).breaks).toEqual([]);
  });

  it("are not where a step, a tool or a sub-run is at work, however long", () => {
    expect(chart([step("tests", 0, 3_600_000), step("b", 3_600_000, 3_600_100)], 3_600_100).breaks).toEqual([]);
    expect(chart([step("agent", 0, 9_000_000), tool("Bash", "agent", 10, 20)], 9_000_000).breaks).toEqual([]);
    expect(chart([span("run", "hello", "call", 0, 9_000_000)], 9_000_000).breaks).toEqual([]);
  });

  it("are where a step only holds steps, and none of them is open", () => {
    const result = chart([step("all", 0, 100_000), step("all.a", 0, 1_000), step("all.b", 90_000, 100_000)], 100_000);
    expect(result.breaks.map((one) => one.ms)).toEqual([89_000]);
  });

  it("are where a question is open, also inside of a step that asks it", () => {
    const result = chart(
      [step("talk", 0, 70_000), tool("Read", "talk", 0, 2_000), wait("ask", "talk", 5_000, 65_000)],
      70_000,
    );
    expect(result.breaks.map((one) => one.ms)).toEqual([60_000]);
    // The bar of the question spans the break.
    expect(result.bars[2]?.from).toBeCloseTo(result.breaks[0]?.from ?? -1);
    expect(result.bars[2]?.to).toBeCloseTo(result.breaks[0]?.to ?? -1);
  });

  it("are not where something else is done beside the question", () => {
    const result = chart([wait("ask", "ask", 0, 60_000), step("build", 0, 60_000)], 60_000);
    expect(result.breaks).toEqual([]);
  });

  it("are cut where something begins or ends, so that each wait has its own", () => {
    const result = chart(
      [step("a", 0, 1_000), wait("ask", "ask", 1_000, 61_000), wait("rate_limit", "ask", 61_000, 181_000)],
      181_000,
    );
    expect(result.breaks.map((one) => one.ms)).toEqual([60_000, 120_000]);
  });

  it("reach to now while the run waits, for whatever", () => {
    const spans = [step("a", 0, 1_000), tool("web-search", "b", 1_000, null)];
    expect(chart(spans, null, 600_000, false).breaks).toEqual([]);
    const waiting = chart(spans, null, 600_000, true);
    expect(waiting.breaks.map((one) => one.ms)).toEqual([599_000]);
    expect(waiting.bars[1]).toMatchObject({ isOpen: true, to: 1, ms: 599_000 });
  });

  it("leave room for the rest, however many there are, and fill the chart where there is nothing else", () => {
    const many = Array.from({ length: 40 }, (_, i) => step("s", i * 100_000, i * 100_000 + 10));
    const result = chart(many, 39 * 100_000 + 10);
    expect(result.breaks).toHaveLength(39);
    expect(result.breaks.reduce((width, one) => width + one.to - one.from, 0)).toBeCloseTo(0.4);
    const nothing = chart([], 100_000);
    expect(nothing.breaks).toEqual([{ from: 0, to: 1, ms: 100_000 }]);
  });
});

describe("many", () => {
  it("are in order, within the chart, and overlap in no lane", () => {
    const spans: Span[] = [step("agent", 0, 2_000_000)];
    for (let i = 0; i < 3_000; i++) spans.push(tool("Bash", "agent", i * 600, i * 600 + (i % 7) * 400));
    const result = chart(spans, 2_000_000);
    const ends = new Map<number, number>();
    for (const bar of result.bars) {
      expect(bar.from).toBeGreaterThanOrEqual(ends.get(bar.lane) ?? 0);
      expect(bar.to).toBeGreaterThanOrEqual(bar.from);
      expect(bar.to).toBeLessThanOrEqual(1);
      ends.set(bar.lane, bar.to);
    }
    expect(result.lanes).toBe(4);
  });

  it("are fast, also where thousands are open at once", () => {
    const spans = Array.from({ length: 2_000 }, (_, i) => step(`all.${i}.x`, i, null));
    const startedAt = performance.now();
    expect(chart(spans, null, 10_000).lanes).toBe(2_000);
    expect(performance.now() - startedAt).toBeLessThan(1_000);
  });
});

it("waits where the log says so, and where an agent asks somebody by itself", () => {
  const spans = [
    wait("deploy", "a", 0, 1),
    tool("AskUserQuestion", "a", 0, 1),
    tool("ask", "a", 0, 1),
    step("a", 0, 1),
  ];
  expect(spans.map(isWait)).toEqual([true, true, false, false]);
});

it("failed, unless it ended because the run was cancelled", () => {
  const failed = span("step", "a", "a", 0, 1, { error: true, end_seq: 4 });
  expect(endingOf(step("a", 0, 1), new Set())).toBeNull();
  expect(endingOf(failed, new Set())).toBe("failed");
  expect(endingOf(failed, new Set([4]))).toBe("cancelled");
});

describe("bars that are too narrow to be told apart", () => {
  const calls = (
    count: number,
    each: number,
    name: (n: number) => string = () => "Bash",
    more: (n: number) => Partial<Span> = () => ({}),
  ) => Array.from({ length: count }, (_, n) => span("tool", name(n), "s", n * each, n * each + each / 2, more(n)));
  const total = (spans: Span[], ended: number) => chart(spans, ended).bars.reduce((sum, bar) => sum + bar.count, 0);

  it.each([1, 10, 160, 161, 1_000, 20_000])("are one, and none is left out: %i", (count) => {
    const bars = chart(calls(count, 100), count * 100).bars;
    expect(bars.reduce((sum, bar) => sum + bar.count, 0)).toBe(count);
    expect(bars.reduce((sum, bar) => sum + bar.ms, 0)).toBe(count * 50);
    expect(bars.length).toBeLessThanOrEqual(330);
    expect(bars.map((bar) => bar.span.seq)).toEqual(bars.map((bar) => bar.span.seq).sort((a, b) => a - b));
  });

  it("stay as they are where there is room", () => {
    expect(chart(calls(20, 100), 2_000).bars.map((bar) => bar.count)).toEqual(Array(20).fill(1));
  });

  it("are told apart where they failed or waited", () => {
    const bars = chart(
      calls(1_000, 100, undefined, (n) => ({ error: n === 500, waits: n === 700 })),
      100_000,
    ).bars;
    expect(bars.filter((bar) => bar.span.error).map((bar) => bar.count)).toEqual([1]);
    expect(bars.filter((bar) => isWait(bar.span)).map((bar) => bar.count)).toEqual([1]);
  });

  it("count those that were merged before", () => {
    expect(
      total(
        calls(1_000, 100, undefined, () => ({ count: 7 })),
        100_000,
      ),
    ).toBe(7_000);
  });

  it("say how many they are", () => {
    const [one] = chart(calls(1, 100), 100).bars;
    const [same] = chart(calls(1_000, 100), 100_000).bars;
    const [other] = chart(
      calls(1_000, 100, (n) => `Tool${n}`),
      100_000,
    ).bars;
    expect([one, same, other].map((bar) => bar && barName(bar))).toEqual([
      "Bash",
      expect.stringMatching(/^\d+ × Bash$/),
      expect.stringMatching(/^\d+ tool calls$/),
    ]);
  });
});
