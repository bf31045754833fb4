import { describe, expect, it } from "vitest";
import type { RunDetail, Usage } from "@/api";
import {
  activityOf,
  cancelReason,
  clientText,
  isActive,
  isCancellation,
  viewOfResult,
  titleOf,
  usageText,
  waitText,
} from "@/views/detail";
import { MAX_FULL_CHARS } from "@/views/textLimits";

const NONE: Usage = { input: 0, output: 0, cache_read: 0, cache_write: 0, reasoning: 0 };

function run(change: Partial<RunDetail>): RunDetail {
  return {
    id: "5f3a1c9e-6d0b-4c55-9a6e-2f8d1b7c4e10",
    task: "Fix the failing test",
    status: "done",
    worker_type: "builtin",
    channel_id: null,
    channel_name: null,
    started_at: "2026-11-15T10:00:00.000Z",
    completed_at: "2026-11-15T10:00:05.000Z",
    event_count: 3,
    has_transcript: true,
    agent_id: null,
    client: null,
    based_on: null,
    parent_run_id: null,
    root_run_id: null,
    name: "fixer",
    kind: "worker",
    duration_ms: 5000,
    tool_calls: 0,
    usage: NONE,
    cost_usd: null,
    tree_usage: NONE,
    tree_cost_usd: null,
    error: null,
    pinned: false,
    provider: null,
    model: null,
    children: 0,
    waits_for: null,
    asks: null,
    interrupted: false,
    interruptions: 0,
    priority: 0,
    progress: null,
    activity: null,
    queue_reason: null,
    search_stopped_at: null,
    result: null,
    transcript: null,
    transcript_omitted: null,
    queued_at: null,
    host: null,
    attempt: 1,
    last_seq: 3,
    awaits: [],
    continued_by: [],
    summary: null,
    questions: [],
    decisions: [],
    artifacts: [],
    ...change,
  };
}

describe("the head of a run", () => {
  it("goes on until it has ended", () => {
    expect((["queued", "running", "waiting", "done", "failed", "cancelled"] as const).filter(isActive)).toEqual([
      "queued",
      "running",
      "waiting",
    ]);
  });

  it("gives the tab its title, on one line, by the worker's name where there is no task", () => {
    expect(titleOf(run({ task: "Fix\nthe   test" }))).toBe("done · Fix the test · Shopfloor");
    expect(titleOf(run({ task: "" }))).toBe("done · fixer · Shopfloor");
    expect(titleOf(run({ task: "x".repeat(5000) })).length).toBeLessThan(160);
  });

  it("says what it waits for", () => {
    expect(waitText(null)).toBeNull();
    expect(waitText([])).toBeNull();
    expect(waitText(["question", "run"])).toBe("waits for an answer, a sub-run");
    expect(waitText(["definition_changed"])).toBe("waits for a changed definition");
    expect(waitText(["some_thing"])).toBe("waits for some thing");
  });
});

describe("what ended with a run that was cancelled", () => {
  const error = { code: "cancelled", message: "somebody cancelled it" } as RunDetail["error"];

  it("says the same as the run does", () => {
    const reason = cancelReason(run({ status: "cancelled", error }));
    expect(reason).toBe("somebody cancelled it");
    expect(isCancellation(reason, "somebody cancelled it", "execution_error")).toBe(true);
    expect(isCancellation(reason, "it was stopped", "cancelled")).toBe(true);
    expect(isCancellation(reason, "exit code 1", "command_failed")).toBe(false);
    expect(isCancellation(reason, null)).toBe(false);
  });

  it("is nothing where the run was not", () => {
    expect(cancelReason(run({ status: "failed", error }))).toBeNull();
    expect(isCancellation(null, "somebody cancelled it", "execution_error")).toBe(false);
    expect(isCancellation(null, "exit code 1", "command_failed")).toBe(false);
  });

  it("is also what was stopped because another branch failed", () => {
    expect(isCancellation(null, "stopped because the sibling `bad` failed", "cancelled")).toBe(true);
  });
});

describe("client", () => {
  it("has its version where that is known", () => {
    expect(clientText({ name: "claude-code", version: "2.1.0", session_id: "s1" })).toBe("claude-code 2.1.0");
    expect(clientText({ name: "cursor", version: null })).toBe("cursor");
    expect(clientText({ name: "cursor" })).toBe("cursor");
  });
});

describe("tokens", () => {
  it("are those of the sub-runs where the run used none itself, and tell that their cost is unknown", () => {
    const spent = { ...NONE, input: 100 };
    expect(usageText(run({ usage: spent, tree_usage: spent }))).toBe("100 input\ncost unknown");
    expect(usageText(run({ children: 2, tree_usage: spent }))).toBe("100 input\ncost unknown");
  });

  it("are counted, and told by class", () => {
    const usage = { input: 1200, output: 300, cache_read: 11_000, cache_write: 0, reasoning: 200 };
    const spent = run({ usage, cost_usd: 0.1 });
    expect(usageText(spent)).toBe(
      "1,200 input\n300 output\n11,000 read from the cache\n200 reasoning (part of output)",
    );
  });
});

describe("a result", () => {
  it("is Markdown, unless it is JSON or what a command printed", () => {
    expect(viewOfResult("# Report", "worker")).toEqual({ as: "markdown", text: "# Report" });
    expect(viewOfResult('{"a":[1]}', "worker")).toEqual({ as: "text", text: '{\n  "a": [\n    1\n  ]\n}' });
    expect(viewOfResult("# not a heading", "command").as).toBe("text");
    expect(viewOfResult("{broken", "worker").as).toBe("markdown");
    expect(viewOfResult("42", "worker").as).toBe("markdown");
  });

  it("is shown as it is where it is very long", () => {
    expect(viewOfResult("x".repeat(MAX_FULL_CHARS + 1), "worker").as).toBe("text");
  });
});

describe("What an active run does", () => {
  const activity = { name: "Bash", preview: "make test", started_at: "2026-11-15T10:00:00.000Z" };
  it.each([
    [{ status: "running", activity }, "Bash make test"],
    [{ status: "running", activity, summary: "Half of the files are done" }, "Half of the files are done"],
    [{ status: "running" }, ""],
    [{ status: "waiting", waits_for: ["approval"] }, "for an approval"],
    [{ status: "queued" }, "Waits for a free slot"],
    [{ status: "queued", queue_reason: "no host has the label gpu=yes" }, "no host has the label gpu=yes"],
  ] as const)("%j: %s", (change, expected) =>
    expect(
      activityOf(run({ activity: null, queue_reason: null, summary: null, ...change } as Partial<RunDetail>)),
    ).toBe(expected),
  );
});
