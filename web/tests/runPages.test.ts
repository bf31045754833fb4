import { describe, expect, test } from "vitest";
import {
  matchesFilter,
  LIST_PAGE,
  type Pages,
  pageSize,
  mergeRows,
  mergeWithKnown,
  unchangeablePage,
  withoutRuns,
} from "../src/api/runPages";
import type { RunFilter } from "../src/api/requests";
import type { Run, RunList } from "../src/api/types";
import { aRun } from "./runs";

/** A run that started `seconds` after noon. */
const at = (seconds: number, change: Partial<Run> = {}) =>
  aRun({ id: `r${seconds}`, started_at: `2026-01-01T12:00:${String(seconds).padStart(2, "0")}.000Z`, ...change });
const page = (workers: Run[], next: string | null = null, total = workers.length): RunList => ({
  workers,
  next,
  total,
});
const pagesOf = (...pages: RunList[]): Pages => ({
  pages,
  pageParams: [null, ...pages.slice(0, -1).map((one) => one.next)],
});
const patch = (pages: Pages, changed: Run[], filter: RunFilter = {}) =>
  mergeRows(pages, filter, new Map(changed.map((run) => [run.id, run])));
const ids = (pages: Pages) => pages.pages.map((one) => one.workers.map((run) => run.id).join(" "));
const total = (pages: Pages) => pages.pages[0]?.total;

describe("a list in another order", () => {
  const pages = pagesOf(page([at(20), at(50)]));

  test("keeps its rows where they are, and is fetched again for new ones", () => {
    const merged = patch(pages, [at(50, { tree_cost_usd: 9 }), at(55)], { sort: "cost" });
    expect(ids(merged.pages)).toEqual(["r20 r50"]);
    expect(merged.pages.pages[0]?.workers[1]?.tree_cost_usd).toBe(9);
    expect(merged.needsRefetch).toBe(true);
  });
});

test("a run with an unknown cost or duration is in no range", () => {
  expect(matchesFilter(at(1, { tree_cost_usd: null }), { maxCost: 1 })).toBe(false);
  expect(matchesFilter(at(1, { tree_cost_usd: 0.5 }), { minCost: 0.5, maxCost: 1 })).toBe(true);
  expect(matchesFilter(at(1, { tree_cost_usd: 2 }), { maxCost: 1 })).toBe(false);
  expect(matchesFilter(at(1, { completed_at: null, duration_ms: null }), { maxDurationMs: 1 })).toBe(false);
  expect(matchesFilter(at(1, { duration_ms: 1_000 }), { minDurationMs: 1_000 })).toBe(true);
});

describe("rows that change", () => {
  const pages = pagesOf(page([at(50), at(40)], "a", 6), page([at(30), at(20)], "b", 6));

  test("are changed in place, and nothing else is touched", () => {
    const now = patch(pages, [at(30, { status: "running" })]).pages;
    expect(ids(now)).toEqual(ids(pages));
    expect(now.pages[1]?.workers[0]?.status).toBe("running");
    expect(now.pages[0]).toBe(pages.pages[0]);
    expect(total(now)).toBe(6);
  });

  test("keep what a search has found in them", () => {
    const found = pagesOf(page([at(50, { snippet: "a \uE000hit\uE001" })]));
    expect(patch(found, [at(50, { status: "failed" })], { q: "hit" }).pages.pages[0]?.workers[0]?.snippet).toBe(
      "a \uE000hit\uE001",
    );
  });

  test("come on top when they are new", () => {
    const now = patch(pages, [at(55), at(56)]).pages;
    expect(ids(now)).toEqual(["r56 r55 r50 r40", "r30 r20"]);
    expect(total(now)).toBe(8);
  });

  test("of the same time: the last that came is first", () => {
    const same = [at(50, { id: "x" }), at(50, { id: "y" })];
    expect(ids(patch(pages, same).pages)[0]).toBe("y x r50 r40");
  });

  test("that come to fit go where their time says", () => {
    const failed = pagesOf(page([at(50), at(30)], "a", 9), page([at(20), at(10)], null, 9));
    const now = patch(failed, [at(40), at(15), at(5)]).pages;
    expect(ids(now)).toEqual(["r50 r40 r30", "r20 r15 r10 r5"]);
    expect(total(now)).toBe(12);
  });

  test("that fit no more go, and are no longer counted", () => {
    const now = patch(pages, [at(40, { status: "done" })], { status: "running" });
    expect(ids(now.pages)).toEqual(["r50", "r30 r20"]);
    expect(total(now.pages)).toBe(5);
    expect(now.needsRefetch).toBe(false);
  });

  test("that do not fit are not added", () => {
    const now = patch(pages, [at(58, { status: "done" })], { status: "running" });
    expect(now.pages).toBe(pages);
  });

  test("move when they start, since they were listed by when they were queued", () => {
    const now = patch(pages, [at(20, { started_at: at(58).started_at })]).pages;
    expect(ids(now)).toEqual(["r20 r50 r40", "r30"]);
    expect(total(now)).toBe(6);
  });

  test("further down than what is loaded are not shown, and leave the total unsure", () => {
    const now = patch(pages, [at(10)]);
    expect(now.pages).toBe(pages);
    expect(now.needsRefetch).toBe(true);
  });

  test("of which all that was loaded has left: the list is asked for again", () => {
    expect(patch(pagesOf(page([], "a", 200)), [at(50)]).needsRefetch).toBe(true);
  });

  test("fill an empty list", () => {
    const now = patch(pagesOf(page([])), [at(1)]).pages;
    expect([ids(now), total(now)]).toEqual([["r1"], 1]);
  });

  test("are never put among what a search found: that is asked for again", () => {
    const now = patch(pages, [at(58), at(40, { status: "failed" })], { q: "word" });
    expect(ids(now.pages)).toEqual(ids(pages));
    expect(now.pages.pages[0]?.workers[1]?.status).toBe("failed");
    expect(now.needsRefetch).toBe(true);
  });

  test("are listed once, also where they were twice", () => {
    const twice = pagesOf(page([at(50), at(20)], "a", 4), page([at(20), at(10)], null, 4));
    expect(ids(patch(twice, [at(20, { status: "failed" })]).pages)).toEqual(["r50 r20", "r10"]);
  });

  test("in a tree: only those that no run called; below a run, only those that it called", () => {
    const child = at(58, { parent_run_id: "r50" });
    expect(patch(pages, [child], { roots: true }).pages).toBe(pages);
    expect(ids(patch(pagesOf(page([])), [child, at(59)], { parent: "r50" }).pages)).toEqual(["r58"]);
    const parent = patch(pages, [at(50, { children: 1 })], { roots: true }).pages;
    expect(parent.pages[0]?.workers[0]?.children).toBe(1);
  });
});

test("what a row tells of whether it fits", () => {
  const run = at(1, { agent_id: "ada", status: "failed", name: "repair", channel_id: "c", parent_run_id: "p" });
  const all: RunFilter = { owner: "ada", status: "failed", worker: "repair", channel: "c", parent: "p" };
  expect(matchesFilter(run, all)).toBe(true);
  for (const name of ["owner", "worker", "channel", "parent"] as const)
    expect(matchesFilter(run, { ...all, [name]: "other" })).toBe(false);
  expect(matchesFilter(run, { status: "done" })).toBe(false);
  expect(matchesFilter(run, { roots: true })).toBe(false);
});

test("runs that are gone", () => {
  const pages = pagesOf(page([at(50), at(40)], "a", 3), page([at(30)], null, 3));
  const now = withoutRuns(pages, new Set(["r40", "other"]));
  expect([ids(now), total(now)]).toEqual([["r50", "r30"], 2]);
  expect(now.pages[1]).toBe(pages.pages[1]);
});

describe("a list that is asked for again", () => {
  const known = pagesOf(page([at(50), at(40)], "a", 6), page([at(30), at(20)], "b", 6), page([at(10), at(5)], null, 6));

  test("keeps what follows where runs came on top", () => {
    expect(mergeWithKnown(known, null, page([at(55), at(50)], "z", 7))).toEqual(page([at(55), at(50), at(40)], "a", 7));
  });

  test("loses what is gone, and goes on with the page it reaches into", () => {
    expect(mergeWithKnown(known, null, page([at(40), at(30)], "z", 5))).toEqual(page([at(40), at(30), at(20)], "b", 5));
  });

  test("begins anew where all of a page is new, and where there is no more than it says", () => {
    const news = page([at(59), at(58)], "z", 9);
    expect(mergeWithKnown(known, null, news)).toBe(news);
    const all = page([at(50)], null, 1);
    expect(mergeWithKnown(known, null, all)).toBe(all);
    expect(mergeWithKnown(undefined, null, news)).toBe(news);
    expect(mergeWithKnown(known, "unknown", news)).toBe(news);
  });

  test("asks only for pages that can have changed", () => {
    expect(unchangeablePage(known, "a", {})).toBe(known.pages[1]);
    expect(unchangeablePage(known, null, {})).toBeUndefined();
    expect(unchangeablePage(known, "unknown", {})).toBeUndefined();
    expect(unchangeablePage(undefined, "a", {})).toBeUndefined();
    const running = pagesOf(page([at(50)], "a"), page([at(40, { completed_at: null })]));
    expect(unchangeablePage(running, "a", {})).toBeUndefined();
  });

  test("by status or by words, old runs can come to fit: that is looked at, but not too far down", () => {
    const pages = pagesOf(...Array.from({ length: 7 }, (_, n) => page([at(50 - n)], `c${n}`)));
    for (const filter of [{ status: "failed" }, { q: "words" }] as const) {
      expect(unchangeablePage(pages, "c3", filter)).toBeUndefined();
      expect(unchangeablePage(pages, "c4", filter)).toBe(pages.pages[5]);
    }
  });
});

describe("the size of a page", () => {
  const far = pagesOf(...Array.from({ length: 7 }, (_, n) => page([at(59 - n)], `c${n}`)));

  test("grows with the way down", () => {
    expect(pageSize(undefined, null)).toBe(LIST_PAGE);
    expect(["c0", "c3"].map((cursor) => pageSize(far, cursor))).toEqual([LIST_PAGE, LIST_PAGE]);
    expect(["c4", "c6"].map((cursor) => pageSize(far, cursor))).toEqual([500, 500]);
  });
});
