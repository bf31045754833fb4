import { readFileSync } from "node:fs";
import { renderToStaticMarkup } from "react-dom/server";
import { describe, expect, it } from "vitest";
import MarkdownBody from "@/components/ui/MarkdownBody";
import { isPlain, isFastToParse, splitBlocks, safeLink, withoutBold, withoutMarks } from "@/views/markdown";

const html = (text: string) => renderToStaticMarkup(<MarkdownBody text={text} />);

describe("Markdown", () => {
  it("is drawn", () => {
    expect(html("# Head\n\nSome **bold** `code`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done")).toMatch(
      /<h3>Head<\/h3>.*<strong>bold<\/strong> <code>code<\/code>.*<td>1<\/td>.*<input[^>]*disabled/s,
    );
  });

  it.each([
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '<svg onload="alert(1)"><a xlink:href="javascript:alert(1)">x</a></svg>',
    "<style>body{display:none}</style>",
    '<iframe src="https://example.org"></iframe>',
    '<a href="javascript:alert(1)" onclick="alert(1)">x</a>',
    "**bold <img src=x onerror=alert(1)>**",
    "<details ontoggle=alert(1) open>",
    '<base href="https://evil.example/">',
  ])("has no markup of its own: %s", (text) => {
    const drawn = html(text).replace(/<\/?(div|p|strong|a)( class="[^"]*")?>/g, "");
    expect(drawn).not.toMatch(/<[a-z]/i);
    expect(drawn).toContain("&lt;");
  });

  it.each([
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](data:text/html,<script>alert(1)</script>)",
    "[x](vbscript:x)",
    "[x](/login?token=x)",
    "[x](//evil.example)",
    "[x](\u0001javascript:alert(1))",
    "[x][1]\n\n[1]: javascript:alert(1)",
    "<javascript:alert(1)>",
    "[x](file:///etc/passwd)",
    "[^1]\n\n[^1]: note",
  ])("has no such link: %j", (text) => {
    expect(html(text)).not.toMatch(/href|src=/);
  });

  it("has links that lead away, and tell nobody from where", () => {
    expect(html("[x](https://example.org/a?b=c)")).toContain(
      'href="https://example.org/a?b=c" target="_blank" rel="noopener noreferrer nofollow"',
    );
    expect(html("https://example.org")).toContain("href=");
    expect(html("<mailto:ada@example.org>")).toContain("href=");
  });

  it.each([
    "![alt](https://example.org/x.png)",
    "![](http://example.org/x.png)",
    "![a](data:image/svg+xml;base64,AAAA)",
    "[![a](https://a.example/i.png)](https://b.example)",
  ])("loads no picture: %s", (text) => {
    expect(html(text)).not.toMatch(/<img|src=|background/);
  });

  it("shows a picture as a link", () => {
    expect(html("![a map](https://example.org/x.png)")).toContain(">a map</a>");
  });
});

describe("a text", () => {
  it("may be Markdown where people write it", () => {
    expect(isFastToParse("")).toBe(true);
    for (const file of ["docs/workers.md", "docs/tutorial.md", "docs/agents.md"]) {
      const text = readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
      expect([file, isFastToParse(text.slice(0, 20_000))]).toEqual([file, true]);
    }
  });

  it.each(["a**b", "[", "[a](", "> ", ">", "~a", "a\n=\n", "- a\n", "|x|y|\n", "<a ", "`"])(
    "is shown as it is where reading it takes long: %j",
    (unit) => {
      expect(isFastToParse(unit.repeat(5_000))).toBe(false);
    },
  );

  it("is shown as it is where it is long", () => {
    expect(isFastToParse("word ".repeat(20_000))).toBe(false);
    const startedAt = performance.now();
    isFastToParse("\n> ".repeat(1_000_000));
    isFastToParse(" ".repeat(40_000));
    isFastToParse("> > ".repeat(9_000));
    expect(performance.now() - startedAt).toBeLessThan(1_000);
  });
});

describe("a link", () => {
  it("is safe or none", () => {
    expect(safeLink("https://a.example")).toBe("https://a.example");
    expect(safeLink("mailto:a@b.example")).toBe("mailto:a@b.example");
    expect(safeLink(undefined)).toBeUndefined();
    expect(safeLink(" javascript:alert(1)")).toBeUndefined();
    expect(safeLink("https:evil")).toBeUndefined();
  });
});

describe("a text without Markdown", () => {
  it.each(["I'll run the tests now.", "One line,\nand another: fine (really)."])("is one paragraph: %j", (text) => {
    expect(isPlain(text)).toBe(true);
    expect(html(text)).toBe(`<div class="markdown"><p>${text.replace("'", "&#x27;")}</p></div>`);
  });

  it.each([
    "a *b*",
    "# a",
    "- a",
    "1. a",
    "  + a",
    "a\n\nb",
    "a\n===",
    "see https://a.b",
    "a@b.c",
    "    code",
    "\tcode",
    "a | b",
    "x &amp; y",
    "a\\\nb",
  ])("is none: %j", (text) => {
    expect(isPlain(text)).toBe(false);
  });
});

describe("a text that is being typed", () => {
  it("is read in pieces, but no code is torn apart", () => {
    expect(splitBlocks("one\n\n\ntwo\nlines\n\n```sh\na\n\nb\n```\n\nend")).toEqual([
      "one",
      "two\nlines",
      "```sh\na\n\nb\n```",
      "end",
    ]);
    expect(splitBlocks("~~~\na\n\n```\n\n")).toEqual(["~~~\na\n\n```\n\n"]);
    expect(splitBlocks("")).toEqual([]);
  });
});

describe("Text on one line", () => {
  it.each([
    ["All **842** tests pass on `main`.", "All 842 tests pass on main."],
    ["## Findings\n**two** of them", "Findings\ntwo of them"],
    ["| a | b |\n|---|:-:|\n| 1 | 2 |", "| a | b |\n\n| 1 | 2 |"],
    ["```python\nx\n```", "\nx\n"],
  ])("has no marks of Markdown: %j", (text, expected) => expect(withoutMarks(text)).toBe(expected));

  it.each(["Delete src/**/*.ts and test/**?", "2**8 is 256, and 2**9 is 512", "**kwargs and **options", "__init__.py"])(
    "keeps what only looks like bold text: %s",
    (text) => {
      expect(withoutBold(text)).toBe(text);
      expect(withoutMarks(text)).toBe(text);
    },
  );
});
