import { describe, expect, it } from "vitest";
import { headline } from "@/views/headline";

describe("the headline of a call", () => {
  it.each([
    [{ command: "echo hello && pwd", description: "Run a test command" }, "echo hello && pwd"],
    [{ command: "/bin/bash -lc 'make test'" }, "make test"],
    [{ command: "/bin/bash -lc \"printf 'x'\"" }, "printf 'x'"],
    [{ command: ["bash", "-lc", "ls -la"] }, "ls -la"],
    [{ command: ["git", "status"] }, "git status"],
    [{ file_path: "/srv/app/note.txt", old_string: "a", new_string: "b" }, "/srv/app/note.txt"],
    [{ filePath: "a.txt", content: "x\n" }, "a.txt"],
    [{ file_path: "/srv/a.py", offset: 40, limit: 20 }, "/srv/a.py:40"],
    [{ pattern: "TODO", path: "src" }, "TODO in src"],
    [{ pattern: "**/*.ts" }, "**/*.ts"],
    [{ query: "shop floor", action: { type: "search", query: "shop floor" } }, "shop floor"],
    [
      {
        changes: [
          { path: "/a.txt", kind: "add" },
          { path: "/b.txt", kind: "update" },
        ],
      },
      "/a.txt, /b.txt",
    ],
    [
      { patchText: "*** Begin Patch\n*** Add File: new.txt\n+one\n*** Delete File: d.txt\n*** End Patch" },
      "new.txt, d.txt",
    ],
    [
      {
        todos: [
          { content: "step 1", status: "in_progress" },
          { content: "step 2", status: "completed" },
        ],
      },
      "1 of 2 done: step 1",
    ],
    [{ items: [{ text: "a", completed: true }] }, "1 of 1 done"],
    [{ a: 1, b: 2 }, "a: 1, b: 2"],
    [{ receiver_thread_ids: ["x"] }, ""],
    [{}, ""],
    [null, ""],
    ["plain\n  text", "plain text"],
    [42, "42"],
    [{ description: "Explore", prompt: "TASK-A", subagent_type: "general-purpose" }, "Explore"],
  ])("%j is %j", (input, expected) => {
    expect(headline(input)).toBe(expected);
  });

  it("is one line, and not a long one", () => {
    const expected = headline({ command: "x\n".repeat(1_000_000) });
    expect(expected.length).toBeLessThanOrEqual(300);
    expect(expected).not.toContain("\n");
  });
});

it("finds the inputs of workers, whose names are in capitals", () => {
  expect(headline({ TONE: "glad", TASK: "Find the bug" })).toBe("Find the bug");
});
