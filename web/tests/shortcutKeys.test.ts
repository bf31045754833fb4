import { describe, expect, it } from "vitest";
import { entryFor, KeySequence, type ShortcutEntry, type Zone } from "@/views/shortcutKeys";

const entry = (zone: Zone, ...keys: string[]): ShortcutEntry => ({
  zone,
  handlers: { current: Object.fromEntries(keys.map((key) => [key, () => undefined])) },
});

describe("a key", () => {
  const pinned = entry("list", "1");
  const strip = entry("detail", "1");
  const page = entry("page", "1", "w");

  it("is for the active column, whichever was mounted last", () => {
    for (const entries of [
      [pinned, strip, page],
      [page, strip, pinned],
    ]) {
      expect(entryFor(entries, "list", "1")).toBe(pinned);
      expect(entryFor(entries, "detail", "1")).toBe(strip);
      expect(entryFor(entries, "detail", "w")).toBe(page);
    }
    expect(entryFor([pinned], "detail", "1")).toBeUndefined();
  });

  it("is for the part of the page that was mounted last, if several of one zone take it", () => {
    const later = entry("page", "1");
    expect(entryFor([page, later], "list", "1")).toBe(later);
  });
});

describe("a sequence", () => {
  const pressed = (...keys: (readonly [string, number])[]) => {
    const sequence = new KeySequence();
    return keys.map(([key, timestamp]) => sequence.next(key, timestamp, (found) => ["gg", "gr"].includes(found)));
  };

  it("is a g and a letter", () => {
    expect(pressed(["g", 0], ["r", 100], ["r", 200])).toEqual([null, "gr", "r"]);
    expect(pressed(["g", 0], ["g", 100], ["g", 200])).toEqual([null, "gg", null]);
  });

  it("may be slow: the letter does not act by itself, since it may start a run", () => {
    expect(pressed(["g", 0], ["r", 2_900])).toEqual([null, "gr"]);
    expect(pressed(["g", 0], ["n", 2_900], ["n", 2_950])).toEqual([null, null, "n"]);
    expect(pressed(["g", 0], ["n", 3_100])).toEqual([null, "n"]);
  });

  it("is ended by other keys, which act", () => {
    expect(pressed(["g", 0], ["Escape", 100], ["r", 200])).toEqual([null, "Escape", "r"]);
    expect(pressed(["g", 0], ["Shift", 100], ["r", 200])).toEqual([null, null, "gr"]);
  });
});
