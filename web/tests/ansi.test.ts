import { describe, expect, it } from "vitest";
import { readFileSync } from "node:fs";
import { renderLines, spansOf } from "@/views/ansi";
import { contrast, MIN_CONTRAST, PAGE, type Rgb, rgbOf } from "@/views/contrast";

const CSS = ["tokens.css", "components/transcript/transcript.css"]
  .map((name) => readFileSync(new URL(`../src/${name}`, import.meta.url), "utf8"))
  .join("\n");

/** Return the color that a CSS value has in a theme. */
function resolve(css: string, theme: "light" | "dark"): Rgb {
  const variable = /^var\(--([\w-]+)\)$/.exec(css)?.[1];
  if (variable !== undefined) {
    const value = new RegExp(`--${variable}: ([^;]+);`).exec(CSS)?.[1];
    if (value === undefined) throw new Error(`no color ${variable}`);
    return resolve(value, theme);
  }
  const both = /^light-dark\((rgb\(.*?\)|#\w+), (.*)\)$/.exec(css);
  if (both) return resolve((theme === "light" ? both[1] : both[2]) ?? "", theme);
  if (css.startsWith("#")) {
    const number = Number.parseInt(css.slice(1, 7), 16);
    return [number >> 16, (number >> 8) & 255, number & 255];
  }
  const rgb = rgbOf(css.replace(/^rgb\(|\)$/g, ""));
  if (!rgb) throw new Error(`no color: ${css}`);
  return rgb;
}

const spanTuples = (text: string) =>
  spansOf(text).map(({ text, color: color, background: background }) => [text, color, background]);

describe("a terminal's colours", () => {
  it("are spans, by the theme's names where they have one", () => {
    expect(spanTuples("a \u001b[31mred\u001b[0m b")).toEqual([
      ["a ", null, null],
      ["red", "var(--ansi-red)", null],
      [" b", null, null],
    ]);
    expect(spanTuples("\u001b[38;5;9mx\u001b[38;5;208my\u001b[38;5;240mz")).toEqual([
      ["x", "var(--ansi-bright-red)", null],
      ["y", expect.stringMatching(/^light-dark\(.*, rgb\(255, 135, 0\)\)$/), null],
      ["z", expect.stringMatching(/^light-dark\(rgb\(88, 88, 88\), /), null],
    ]);
    expect(spanTuples("\u001b[38;2;111;111;119mx")).toEqual([["x", expect.stringContaining("111, 111, 119"), null]]);
  });

  it("can be read on a background of the terminal's: its colors are made for the page's background", () => {
    expect(spanTuples("\u001b[92;44mx\u001b[0m")).toEqual([["x", "var(--bg-sunken)", "var(--ansi-blue)"]]);
    expect(spanTuples("\u001b[7mx\u001b[0m")).toEqual([["x", "var(--bg-sunken)", "var(--ansi-white)"]]);
    expect(spanTuples("\u001b[38;5;208;48;5;240mx")).toEqual([["x", "rgb(255, 255, 255)", "rgb(88, 88, 88)"]]);
    expect(spanTuples("\u001b[38;5;220;48;5;240mx")).toEqual([["x", "rgb(255, 215, 0)", "rgb(88, 88, 88)"]]);
  });

  it.each(["light", "dark"] as const)("can all be read in the %s theme", (theme) => {
    const numbers = Array.from({ length: 256 }, (_, n) => n);
    const sequences = [
      ...numbers.flatMap((n) => [`38;5;${n}`, `48;5;${n}`, `31;48;5;${n}`, `7;38;5;${n}`, `2;38;5;${n}`]),
      ...numbers.map((n) => `38;5;${(n * 37) % 256};48;5;${n}`),
      ...["2", "7", "2;7", "38;2;250;250;0", "38;2;0;0;9", "48;2;128;128;128", "38;2;1;1;1;48;2;2;2;2"],
      ...[30, 31, 33, 37, 90, 97].flatMap((n) => [`${n}`, `${n + 10}`, `7;${n}`, `2;${n}`]),
    ];
    const unreadable = sequences.filter((sequence) => {
      const [span] = spansOf(`\u001b[${sequence}mx`);
      const [color, background] = [span?.color ?? "var(--text)", span?.background ?? "var(--bg-sunken)"];
      return contrast(resolve(color, theme), resolve(background, theme)) < MIN_CONTRAST;
    });
    expect(unreadable).toEqual([]);
  });

  it("are compared with the page's real background", () => {
    expect(PAGE).toEqual({ light: resolve("var(--bg-sunken)", "light"), dark: resolve("var(--bg-sunken)", "dark") });
  });

  it("come with bold and the like", () => {
    expect(spansOf("\u001b[1;3;4;9mx")[0]).toMatchObject({
      bold: true,
      italic: true,
      underline: true,
      strikethrough: true,
    });
  });

  it("leave markup as it is", () => {
    expect(spanTuples("<b>\u001b[31m<script>alert(1)</script>")).toEqual([
      ["<b>", null, null],
      ["<script>alert(1)</script>", "var(--ansi-red)", null],
    ]);
  });

  it("are not drawn without end", () => {
    const startedAt = performance.now();
    const spans = spansOf("\u001b[31mx\u001b[0m ".repeat(50_000));
    expect(spans.length).toBeLessThan(5_000);
    expect(spans.map((span) => span.text).join("")).toBe("x ".repeat(50_000));
    expect(performance.now() - startedAt).toBeLessThan(3_000);
  });
});

describe("what is drawn", () => {
  it("is the last of a line that was drawn again", () => {
    expect(renderLines("10%\r50%\r100%\ndone\n")).toBe("100%\ndone\n");
    expect(renderLines("\u001b[31mold\rnew\r\u001b[0m\n")).toBe("\u001b[31mnew\n");
    expect(renderLines("crlf\r\nend\r\n")).toBe("crlf\nend\n");
  });

  it("has no other commands", () => {
    expect(
      renderLines(
        "a\u001b[2K\u001b[1;5Hb\u001b[?25lc\u001b]0;title\u0007d\u001b]8;;https://x\u001b\\link\u001b]8;;\u001b\\\u001b(B\u001b7e\u0007\u0008",
      ),
    ).toBe("abcdlinke");
    expect(renderLines("nul \u0000")).toBe("nul \u2400");
    expect(renderLines("tab\tstays\n")).toBe("tab\tstays\n");
    expect(renderLines("ends in an escape \u001b[")).not.toContain("\u0007");
  });
});
