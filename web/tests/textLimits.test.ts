import { describe, expect, it } from "vitest";
import { colorsAfter } from "@/views/ansi";
import { tailOf } from "@/views/textLimits";

const lines = (count: number) => Array.from({ length: count }, (_, n) => `line ${n + 1}`).join("\n");

describe("the last lines of a text", () => {
  it.each([
    ["no text", "", 3],
    ["few lines", lines(3), 3],
    ["a line more than fit", lines(4), 3],
    ["three lines more than fit", lines(6), 3],
    ["one long line", "x".repeat(10_000), 3],
  ])("are all of it: %s", (_, text, most) => expect(tailOf(text, most)).toBeNull());

  it("have the number of those above", () => {
    expect(tailOf(lines(100), 3)).toEqual({ hidden: lines(97), lines: 97, tail: "line 98\nline 99\nline 100" });
  });

  it("do not count the end of the last line as one", () => {
    expect(tailOf(`${lines(100)}\n`, 3)).toMatchObject({ lines: 97, tail: "line 98\nline 99\nline 100\n" });
  });

  it("lose none, however many there are", () => {
    for (const count of [7, 8, 50, 1_000]) {
      const found = tailOf(lines(count), 3);
      expect(`${found?.hidden}\n${found?.tail}`).toBe(lines(count));
      expect(found?.lines).toBe(count - 3);
    }
  });
});

describe("colours that hold at the end of a text", () => {
  it.each([
    ["plain", ""],
    ["\u001b[31mred", "\u001b[31m"],
    ["\u001b[31mred\u001b[0m", ""],
    ["\u001b[31mred\u001b[m and \u001b[1m\u001b[32mgreen", "\u001b[1m\u001b[32m"],
  ])("are those since the last reset: %j", (text, set) => expect(colorsAfter(text)).toBe(set));
});
