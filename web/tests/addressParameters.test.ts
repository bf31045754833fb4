import { describe, expect, test } from "vitest";
import { withChange, filterOf, isFiltered, paramsOf } from "../src/views/addressParameters";

describe("what an address says", () => {
  test("all of it", () => {
    const params = { worker: "id", event: 7, q: "words", status: "failed", of: "repair", channel: "C1", tree: true };
    expect(paramsOf(params)).toEqual(params);
    const more = { model: "opus", provider: "anthropic", error: "timeout", since: "2026-11-06T00:00:00.000Z" };
    expect(paramsOf(more)).toEqual(more);
    expect(paramsOf({ until: "2026-11-06" })).toEqual({ until: "2026-11-06T00:00:00.000Z" });
  });

  test("as people write it", () => {
    expect(paramsOf({ event: "7", q: 123, of: true, tree: "true" })).toEqual({
      event: 7,
      q: "123",
      of: "true",
      tree: true,
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
    [{ tree: false }],
    [{ tree: "no" }],
    [{ since: "yesterday" }],
    [{ since: 2026 }],
    [{ unknown: 1 }],
  ])("what makes no sense is left out: %j", (params) => expect(paramsOf(params)).toEqual({}));
});

test("what is taken out of an address leaves nothing there", () => {
  const before = { worker: "a", event: 7, q: "words", tree: true };
  expect(withChange(before, { worker: "b", event: undefined })).toEqual({ worker: "b", q: "words", tree: true });
  expect(withChange(before, { q: "", tree: false })).toEqual({ worker: "a", event: 7 });
  expect(withChange({}, { status: "done" })).toEqual({ status: "done" });
});

describe("which runs a list is of", () => {
  test("as the place says", () => {
    expect(filterOf({ owner: "ada", status: "done", of: "repair", channel: "C1", worker: "chosen" })).toEqual({
      owner: "ada",
      status: "done",
      worker: "repair",
      channel: "C1",
    });
  });

  test("in a tree, those that no run called; a search looks at all", () => {
    expect(filterOf({ owner: undefined, tree: true })).toEqual({ roots: true });
    expect(filterOf({ owner: undefined, tree: true, q: "words" })).toEqual({ q: "words" });
  });

  test("whose they are, and the tree, leave nothing out that could be cleared", () => {
    expect(isFiltered({ owner: "ada", tree: true, worker: "chosen" })).toBe(false);
    for (const one of [{ q: "w" }, { status: "done" }, { of: "w" }, { channel: "c" }] as const)
      expect(isFiltered({ owner: undefined, ...one })).toBe(true);
  });
});
