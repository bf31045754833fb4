import { describe, expect, test } from "vitest";
import { withChange, filterOf, isFiltered, paramsOf } from "../src/views/addressParameters";

describe("what an address says", () => {
  test("all of it", () => {
    const params = { worker: "id", event: 7, q: "words", status: "failed", of: "repair", channel: "C1", flat: true };
    expect(paramsOf(params)).toEqual(params);
    const more = { model: "opus", provider: "anthropic", error: "timeout", since: "2026-11-06T00:00:00.000Z" };
    expect(paramsOf(more)).toEqual(more);
    const amounts = { minCost: 0, maxCost: 2.5, minSeconds: 60, maxSeconds: 600, sort: "cost" };
    expect(paramsOf(amounts)).toEqual(amounts);
    expect(paramsOf({ until: "2026-11-06" })).toEqual({ until: "2026-11-06T00:00:00.000Z" });
  });

  test("as people write it", () => {
    expect(paramsOf({ event: "7", q: 123, of: true, flat: "true" })).toEqual({
      event: 7,
      q: "123",
      of: "true",
      flat: true,
    });
  });

  test.each([
    [{ worker: "" }],
    [{ worker: ["a", "b"] }],
    [{ worker: { a: 1 } }],
    [{ worker: null }],
    [{ event: 0 }],
    [{ event: -1 }],
    [{ event: 1.5 }],
    [{ event: "last" }],
    [{ event: true }],
    [{ event: 1e300 }],
    [{ status: "all" }],
    [{ status: "DONE" }],
    [{ status: ["done"] }],
    [{ since: "yesterday" }],
    [{ since: 2026 }],
    [{ minCost: -1 }],
    [{ maxCost: "much" }],
    [{ minSeconds: "" }],
    [{ maxSeconds: 1e300 }],
    [{ sort: "newest" }],
    [{ flat: false }],
    [{ flat: "no" }],
    [{ unknown: 1 }],
  ])("what makes no sense is left out: %j", (params) => expect(paramsOf(params)).toEqual({}));
});

test("what is taken out of an address leaves nothing there", () => {
  const before = { worker: "a", event: 7, q: "words", flat: true };
  expect(withChange(before, { worker: "b", event: undefined })).toEqual({ worker: "b", q: "words", flat: true });
  expect(withChange(before, { q: "", flat: false })).toEqual({ worker: "a", event: 7 });
  expect(withChange({}, { status: "done" })).toEqual({ status: "done" });
});

describe("which runs a list is of", () => {
  test("as the place says", () => {
    expect(filterOf({ owner: "ada", status: "done", of: "repair", channel: "C1", worker: "chosen" })).toEqual({
      owner: "ada",
      status: "done",
      worker: "repair",
      channel: "C1",
      roots: true,
    });
  });

  test("those that no run called, unless all are wanted; a search looks at all", () => {
    expect(filterOf({ owner: undefined })).toEqual({ roots: true });
    expect(filterOf({ owner: undefined, flat: true })).toEqual({});
    expect(filterOf({ owner: undefined, q: "words" })).toEqual({ q: "words" });
  });

  test("whose they are, and whether sub-runs are listed, leave nothing out that could be cleared", () => {
    expect(isFiltered({ owner: "ada", flat: true, worker: "chosen" })).toBe(false);
    for (const one of [{ q: "w" }, { status: "done" }, { of: "w" }, { channel: "c" }] as const)
      expect(isFiltered({ owner: undefined, ...one })).toBe(true);
  });
});
