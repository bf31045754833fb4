import { describe, expect, it } from "vitest";
import { numbered, parseUnifiedDiff } from "@/views/diff";
import { languageOf, tokensOf } from "@/views/highlight";
import { tasksOf } from "@/views/taskList";
import { isReadTool, toolIcon } from "@/views/toolIcons";

const kinds = (code: string, language: string) =>
  tokensOf(code, language)
    .filter(({ kind }) => kind !== null)
    .map(({ text, kind }) => `${text} ${kind ?? ""}`);

describe("the colors of code", () => {
  it("are by language, which a file or a fence names", () => {
    expect([languageOf("src/app.py"), languageOf("ts"), languageOf("Dockerfile"), languageOf("a.unknown")]).toEqual([
      "python",
      "javascript",
      "shell",
      null,
    ]);
    expect(languageOf(null)).toBeNull();
  });

  it("tell words, strings, numbers and comments apart", () => {
    expect(kinds('def f(x: int = 2) -> "Str":  # why', "python")).toEqual([
      "def keyword",
      "f func",
      "2 number",
      '"Str" string',
      "# why comment",
    ]);
    expect(kinds("const a = `x ${y}` // b", "javascript")).toEqual([
      "const keyword",
      "`x ${y}` string",
      "// b comment",
    ]);
    expect(kinds("SELECT 1 FROM t", "sql")).toEqual(["SELECT keyword", "1 number", "FROM keyword"]);
  });

  it("leave out no character, whatever the text is", () => {
    const odd = "\"never closed\n'''also not \u{1F600} <script>alert(1)</script> \\ # end";
    for (const language of ["python", "javascript", "shell", "sql", "yaml", "html", "css", "rust", "go", "c", "ruby"]) {
      const tokens = tokensOf(odd, language);
      expect(tokens.map(({ text }) => text).join("")).toBe(odd);
    }
    expect(tokensOf("x".repeat(100_000), "python")).toHaveLength(1);
  });

  it("take no longer for text that looks like the beginning of many strings", () => {
    const startedAt = performance.now();
    for (const text of ["\\".repeat(50_000), "'".repeat(50_000), "/*".repeat(25_000)])
      for (const language of ["python", "javascript", "sql"]) tokensOf(text, language);
    expect(performance.now() - startedAt).toBeLessThan(3_000);
  });
});

it("numbers the lines of a diff", () => {
  const lines = parseUnifiedDiff("@@ -10,2 +20,3 @@ def f\n same\n-old\n+new\n+more\n same");
  expect(numbered(lines).map(({ number }) => number)).toEqual([null, 20, 11, 21, 22, 23]);
  expect(numbered([{ kind: "added", text: "x" }])[0]?.number).toBeNull();
});

describe("tools", () => {
  it("have an icon by what they do, whatever the agent calls them", () => {
    expect(
      ["Bash", "exec_command", "Edit", "apply_patch", "WebSearch", "mcp__x__y", "mcp__my_files__read_file"].map(
        toolIcon,
      ),
    ).toEqual(["term", "term", "edit", "edit", "web", "tool", "file"]);
    expect([isReadTool("Read"), isReadTool("Grep"), isReadTool("Write")]).toEqual([true, true, false]);
  });

  it("have lists of tasks in one form", () => {
    const expected = [
      { text: "a", state: "done" },
      { text: "b", state: "current" },
      { text: "c", state: "open" },
    ];
    const states = ["completed", "in_progress", "pending"];
    const list = (field: string) => ["a", "b", "c"].map((text, n) => ({ [field]: text, status: states[n] }));
    expect(tasksOf("TodoWrite", { todos: list("content") })).toEqual(expected);
    expect(tasksOf("update_plan", { plan: list("step") })).toEqual(expected);
    expect(tasksOf("todo_list", { items: [{ text: "a", completed: true }] })).toEqual([{ text: "a", state: "done" }]);
    for (const input of [{}, { todos: [] }, { todos: ["x"] }, { todos: [{}] }, null])
      expect(tasksOf("TodoWrite", input)).toBeNull();
    expect(tasksOf("Bash", { todos: list("content") })).toBeNull();
  });
});
