import { describe, expect, it } from "vitest";
import { type DiffLine, changesOf, diffLines, parseUnifiedDiff } from "@/views/diff";

const asText = (lines: readonly DiffLine[]) =>
  lines.map(({ kind, text }) => `${{ same: " ", added: "+", removed: "-", hunk: "@" }[kind]}${text}`);

describe("a unified diff", () => {
  it.each([
    "--- /a\n+++ /a\n@@ -1,2 +1,2 @@\n line one\n-line two\n+line 2\n",
    "diff --git a/a b/a\nindex 0000000..0000000 100644\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n line one\n-line two\n+line 2\n\\ No newline at end of file\n",
    "Index: /a\n===================================================================\n--- /a\n+++ /a\n@@ -1,2 +1,2 @@\n line one\n-line two\n+line 2\n",
  ])("is read whoever made it", (diff) => {
    expect(asText(parseUnifiedDiff(diff))).toEqual(["@@@ -1,2 +1,2 @@", " line one", "-line two", "+line 2"]);
  });

  it("may change lines that look like headers", () => {
    expect(asText(parseUnifiedDiff("--- a\n+++ a\n@@ -1 +1 @@\n--- old\n+++ new\n"))).toEqual([
      "@@@ -1 +1 @@",
      "--- old",
      "+++ new",
    ]);
  });
});

describe("two texts", () => {
  it("are compared by lines", () => {
    expect(asText(diffLines("a\nb\nc\nd\n", "a\nx\nc\ny\nd\n"))).toEqual([" a", "-b", "+x", " c", "+y", " d"]);
    expect(asText(diffLines("", "a\nb\n"))).toEqual(["+a", "+b"]);
    expect(asText(diffLines("a", ""))).toEqual(["-a"]);
    expect(asText(diffLines("same", "same"))).toEqual([" same"]);
  });

  it("that are long are not compared line by line", () => {
    const [before, after] = [
      Array.from({ length: 5_000 }, (_, n) => `old ${n}`),
      Array.from({ length: 5_000 }, (_, n) => `new ${n}`),
    ];
    const startedAt = performance.now();
    expect(diffLines(before.join("\n"), after.join("\n"))).toHaveLength(10_000);
    expect(performance.now() - startedAt).toBeLessThan(500);
  });
});

describe("what a call changes", () => {
  it("is what its result tells", () => {
    const files = [{ path: "/a", action: "modify" as const, diff: "@@ -1 +1 @@\n-a\n+b\n" }];
    expect(
      changesOf({ file_path: "/a", old_string: "x", new_string: "y" }, files).map((file) => asText(file.lines)),
    ).toEqual([["@@@ -1 +1 @@", "-a", "+b"]]);
  });

  it.each([
    [{ file_path: "/a", old_string: "a\nb", new_string: "a\nc" }, [" a", "-b", "+c"]],
    [{ filePath: "/a", oldString: "a", newString: "b" }, ["-a", "+b"]],
    [{ path: "/a", old_str: "a", new_str: "b" }, ["-a", "+b"]],
    [{ file_path: "/a", content: "one\ntwo\n" }, ["+one", "+two"]],
    [{ path: "/a", file_text: "one" }, ["+one"]],
    [
      {
        file_path: "/a",
        edits: [
          { old_string: "a", new_string: "b" },
          { old_string: "c", new_string: "d" },
        ],
      },
      ["-a", "+b", "@…", "-c", "+d"],
    ],
  ])("or else what it asks for: %j", (input, lines) => {
    expect(changesOf(input, null).map((file) => asText(file.lines))).toEqual([lines]);
  });

  it("may be a patch", () => {
    const patchText =
      "*** Begin Patch\n*** Add File: new.txt\n+one\n*** Update File: a.txt\n@@\n-hello\n+bye\n same\n*** Delete File: d.txt\n*** End Patch";
    expect(changesOf({ patchText }, null).map((file) => [file.path, file.action, asText(file.lines)])).toEqual([
      ["new.txt", "create", ["+one"]],
      ["a.txt", "modify", ["@@@", "-hello", "+bye", " same"]],
      ["d.txt", "delete", []],
    ]);
  });

  it("is nothing where a tool changes nothing", () => {
    expect(changesOf({ command: "ls" }, null)).toEqual([]);
    expect(changesOf({ file_path: "/a" }, [{ path: "/a", action: "modify" }])).toEqual([]);
    expect(changesOf(null, undefined)).toEqual([]);
  });
});
