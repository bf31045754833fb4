import { describe, expect, it } from "vitest";
import type { LogEvent, Page } from "@/api";
import { rowsOf } from "@/views/transcriptRows";
import {
  approvalOf,
  answerOf,
  isAnswerable,
  isBrokenJson,
  optionsOf,
  questionOf,
  reasonOf,
} from "@/views/pendingCalls";
import { searchReducer } from "@/components/transcript/useTranscriptSearch";
import { noteText } from "@/components/transcript/labels";

describe("what a run asks", () => {
  it("is a question, or a tool's input", () => {
    expect(questionOf({ kind: "question", input: { question: "Go on?", options: ["yes", "no"] } })).toBe("Go on?");
    expect(questionOf({ kind: "approval", input: { message: "May I?" } })).toBe("May I?");
    expect(questionOf({ kind: "question", input: "Why?" })).toBe("Why?");
    expect(questionOf({ kind: "client_tool", input: { question: "not one" } })).toBeNull();
    expect(questionOf({ kind: "question", input: { question: " " } })).toBeNull();
    expect(questionOf({ kind: "question", input: null })).toBeNull();
  });

  it("is asked only where an answer ends the wait", () => {
    expect(["question", "approval", "client_tool"].filter(isAnswerable)).toHaveLength(3);
    expect(["rate_limit", "definition_changed", "of a later version", ""].filter(isAnswerable)).toEqual([]);
  });

  it.each([
    ["rate_limit", { until: "2026-01-01T00:00:00.000Z" }, "Waiting for the provider’s rate limit.", null],
    [
      "definition_changed",
      { message: "greet() has changed", function: "greet" },
      "greet() has changed",
      "function: greet",
    ],
    ["definition_changed", "greet() has changed", "greet() has changed", null],
    ["moon_phase", null, "Waiting: moon phase.", null],
    ["moon_phase", { phase: "new", until: "later" }, "Waiting: moon phase.", "phase: new"],
    ["", null, "Waiting: tool.", null],
  ])("says why it waits where nobody can answer: %s %j", (kind, input, reason, details) => {
    expect(reasonOf({ kind, name: "tool", input })).toEqual({ reason, details });
  });

  it("may have options", () => {
    expect(optionsOf({ options: ["a", 2, true, { x: 1 }, null] })).toEqual(["a", 2, true]);
    expect(optionsOf({ options: "a" })).toEqual([]);
    expect(optionsOf(null)).toEqual([]);
  });

  it("is answered in words; a tool gives JSON where it is JSON", () => {
    expect(answerOf(" 42 ", "question")).toBe("42");
    expect(answerOf("42", "client_tool")).toBe(42);
    expect(answerOf('["a"]', "client_tool")).toEqual(["a"]);
    expect(answerOf("some text", "client_tool")).toBe("some text");
  });

  it.each(['{"broken', "[1,", '"half', ' {"a": 1} and more'])("is doubted where it is broken JSON: %j", (typed) => {
    expect(isBrokenJson(typed, "client_tool")).toBe(true);
    expect(isBrokenJson(typed, "question")).toBe(false);
  });

  it.each(['{"a": 1}', "[]", '"whole"', "words", "1,", ""])("is not doubted otherwise: %j", (typed) =>
    expect(isBrokenJson(typed, "client_tool")).toBe(false),
  );
});

describe("a search in a run", () => {
  const noSearch = { hits: [], index: -1, hasMore: false, isSearching: false, problem: null, searchedTo: 0 };
  const hit = (seq: number) => ({ seq, type: "tool.call", snippet: "\uE000x\uE001" });

  it("is at its first hit, and stays at its hit while more are found", () => {
    const first = searchReducer(searchReducer(noSearch, { type: "started" }), {
      type: "found",
      found: { hits: [hit(3), hit(9)], more: true, searched_to: 100 },
    });
    expect(first).toMatchObject({ index: 0, hasMore: true, isSearching: false, searchedTo: 100 });
    const moved = searchReducer(first, { type: "moved", index: 1 });
    const more = searchReducer(moved, { type: "found", found: { hits: [hit(200)], more: false, searched_to: 250 } });
    expect(more).toMatchObject({ index: 1, hasMore: false, searchedTo: 250 });
    expect(more.hits.map((one) => one.seq)).toEqual([3, 9, 200]);
    expect(searchReducer(more, { type: "cleared" })).toEqual(noSearch);
  });
});

describe("what an agent's program says of itself", () => {
  it.each([
    [
      { kind: "retry" as const, message: "overloaded", status: 529, try: 1, tries: 3, retry_after: 0.575 },
      "Attempt 1 of 3 failed: overloaded (HTTP 529); next attempt in 0.6 s",
    ],
    [{ kind: "denied" as const, message: "no" }, "Not allowed: no"],
    [{ kind: "ready" as const, ready: { model: "m", tools: ["a", "b"] } }, "Ready · m · 2 tools"],
    [{ kind: "ready" as const }, "Ready"],
    [
      { kind: "limit" as const, limit: { status: "warning" as const, current: 0.91, window: "five_hour" } },
      "Near a limit (five hour): 91% used",
    ],
    [{ kind: "limit" as const }, "Provider limit"],
    [{ kind: "error" as const, code: "rate_limit_error" }, "rate_limit_error"],
    [{ kind: "left" as const }, "Paused here, continued later"],
  ])("%j is %j", (note, text) => {
    expect(noteText(note)).toBe(text);
  });
});

describe("an attempt", () => {
  const event = (seq: number, type: string, payload: object) =>
    ({
      seq,
      run_id: "r",
      type,
      path: "",
      iteration: 0,
      timestamp: "2026-11-15T10:30:00.000Z",
      payload,
    }) as unknown as LogEvent;
  const started = (seq: number, attempt: number) =>
    event(seq, "run.started", { name: "w", kind: "worker", attempt, host: "h" });
  const question = event(2, "tool.call", {
    name: "ask",
    call_id: "c",
    input: {},
    output: null,
    fidelity: "router",
    awaits: { kind: "question" },
  });
  const worked = event(2, "step.started", { name: "s", kind: "command", try: 1 });
  const attempts = (before: LogEvent) => {
    const page = { events: [started(1, 1), before, started(3, 2)], laterEnds: [] } as unknown as Page;
    return [...rowsOf(page, false).values()].filter((row) => row.kind === "attempt").map((row) => row.seq);
  };

  it("is told where another was cut off, and not where a run went on after it was answered", () => {
    expect(attempts(worked)).toEqual([3]);
    expect(attempts(question)).toEqual([]);
  });
});

describe("an approval", () => {
  const input = {
    tool: "Edit",
    input: { file_path: "/srv/app.py", old_string: "a", new_string: "b" },
    pattern: "Edit",
    diff: "@@ -1 +1 @@\n-a\n+b",
    options: ["approve", "approve for this run", "always approve", "deny"],
  };

  it("asks for the tool and shows what would be done", () => {
    expect(questionOf({ kind: "approval", input })).toBe("Allow Edit?");
    expect(approvalOf(input)).toEqual({
      question: "Allow Edit?",
      detail: "/srv/app.py",
      others: null,
      diff: "@@ -1 +1 @@\n-a\n+b",
    });
    expect(approvalOf({ tool: "publish", input: { word: "x" } }).detail).toContain('"word"');
  });

  it("shows the values in a command and the other fields of a call", () => {
    const command = { command: 'git "${VALUE_X}"', cwd: "/srv", variables: { VALUE_X: "push" } };
    expect(approvalOf({ tool: "command", input: command }).others).toBe("VALUE_X: push");
    const write = { file_path: "/srv/a", content: "rm -rf /" };
    expect(approvalOf({ tool: "Write", input: write }).others).toBe("content: rm -rf /");
    expect(approvalOf({ tool: "Bash", input: { command: "ls", description: "harmless" } }).others).toBeNull();
  });

  it("is answered with text, also with a reason", () => {
    expect(answerOf("deny: not today", "approval")).toBe("deny: not today");
    expect(isBrokenJson("[no", "approval")).toBe(false);
  });
});
