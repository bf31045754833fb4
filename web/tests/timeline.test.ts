import { describe, expect, it } from "vitest";
import type { Span, TimelineRow } from "@/api";
import { type CallItem, failuresOf, indexOfEvent, itemsOf, longestMs } from "@/views/timelineRows";

type Type = TimelineRow["event_type"];

const row = (seq: number, event_type: Type, data: Record<string, unknown>): TimelineRow => ({
  id: seq,
  event_type,
  data,
  created_at: "2026-11-15T10:00:00.000Z",
  seq,
});
const started = (seq: number, name: string, preview = "") => row(seq, "tool_started", { tool_name: name, preview });
const ended = (seq: number, call_seq: number, more: Record<string, unknown> = {}) =>
  row(seq, "tool_completed", { tool_name: "Bash", call_seq, duration_ms: 10, ...more });
const outline = (rows: TimelineRow[]) =>
  itemsOf(rows, null).map((item) =>
    item.kind === "call" ? `${item.seq} ${item.name}` : item.kind === "turn" ? `turn ${item.number}` : item.text,
  );
const only = (...rows: TimelineRow[]) => itemsOf(rows, null)[0];

describe("an item of the timeline", () => {
  it("is one for a call and its result", () => {
    expect(itemsOf([started(1, "Bash", "ls -a"), ended(2, 1, { duration_ms: 4200 })], null)).toMatchObject([
      { kind: "call", seq: 1, lastSeq: 2, name: "Bash", preview: "ls -a", ending: "completed", durationMs: 4200 },
    ]);
    expect(only(started(1, "Bash"))).toMatchObject({ ending: null, durationMs: null });
  });

  it("is one for a result whose call is not known", () => {
    const [item] = itemsOf([ended(12, 3, { call_seq: null, duration_ms: null })], null);
    expect(item).toMatchObject({ kind: "call", seq: 12, durationMs: null });
  });

  it("tells a failed call with its error, on one line; an empty error is one too", () => {
    const failed = only(started(1, "Bash"), ended(2, 1, { error: "exit code 1\n  no such file" }));
    expect(failed).toMatchObject({ ending: "failed", error: "exit code 1 no such file" });
    expect(only(started(1, "Bash"), ended(2, 1, { error: "" }))).toMatchObject({ ending: "failed" });
  });

  it("names a file without its folders, and says nothing of a list of tasks", () => {
    expect(only(started(1, "Read", "/a/b/c.py"))).toMatchObject({ preview: "c.py" });
    expect(only(started(1, "TodoWrite", '{"todos": []}'))).toMatchObject({ preview: "" });
    expect(only(started(1, "Bash", "cat /a/b"))).toMatchObject({ preview: "cat /a/b" });
  });

  it("tells an error by its message, or else by its code", () => {
    expect(only(row(1, "error", { message: "no room", code: "storage_full" }))).toMatchObject({ text: "no room" });
    expect(only(row(1, "error", { code: "storage_full" }))).toMatchObject({ text: "storage_full" });
    expect(only(row(1, "error", {}))).toMatchObject({ kind: "error", text: "error" });
  });

  it("tells what ended because the run was cancelled, and only that, as cancelled", () => {
    const why = "somebody cancelled it";
    const [error, call, other] = itemsOf(
      [
        row(1, "error", { message: why, step: "sleep" }),
        ended(2, 0, { error: why }),
        row(3, "error", { message: "exit code 1" }),
      ],
      why,
    );
    expect(error).toMatchObject({ isCancellation: true, text: why });
    expect(call).toMatchObject({ ending: "cancelled" });
    expect(other).toMatchObject({ isCancellation: false });
  });

  it("can do with data of any shape", () => {
    expect(only(row(1, "status", { status: { odd: 1 } }))).toMatchObject({ text: '{"odd":1}' });
    expect(only(row(1, "tool_started", {}))).toMatchObject({ name: "tool", preview: "" });
    expect(only(row(9, "tool_completed", { tool_name: 5, duration_ms: "x", call_seq: "y" }))).toMatchObject({
      name: "5",
      durationMs: null,
      seq: 9,
    });
  });

  it("takes the ends of steps and sub-runs from elsewhere", () => {
    const span = {
      seq: 2,
      end_seq: 9,
      kind: "run",
      name: "helper",
      duration_ms: 7,
      ended_at: "x",
      error: false,
    } as Span;
    const spans = new Map<number, Span>([
      [2, span],
      [3, { ...span, seq: 3, kind: "step" }],
      [5, { ...span, seq: 5, kind: "step", error: true }],
    ]);
    const rows = [2, 3, 5, 6].map((seq) => row(seq, "status", { status: `step ${seq}` }));
    expect(itemsOf(rows, null, spans)).toMatchObject([
      { kind: "call", isSubRun: true, name: "helper", durationMs: 7, ending: "completed" },
      { kind: "status", text: "step 3", isStep: true, durationMs: 7, ending: "completed" },
      { kind: "status", isStep: true, ending: "failed" },
      { kind: "status", isStep: false, ending: null },
    ]);
    const cancelled = itemsOf([...rows, row(9, "error", { message: "why" })], "why", spans);
    expect(cancelled[2]).toMatchObject({ ending: "cancelled" });
  });
});

describe("turns", () => {
  it("begin where the agent said something before it called", () => {
    const rows = [started(4, "Read"), ended(5, 4), started(7, "Read"), ended(8, 7), started(11, "Bash"), ended(12, 11)];
    expect(outline([row(1, "status", { status: "agent" }), ...rows])).toEqual([
      "agent",
      "turn 1",
      "4 Read",
      "7 Read",
      "turn 2",
      "11 Bash",
    ]);
  });

  it("have calls at the same time in them", () => {
    expect(outline([started(3, "A"), started(9, "B"), ended(10, 3), ended(11, 9)])).toEqual(["turn 1", "3 A", "9 B"]);
  });

  it("leave out the step of an agent's sub-run: the call tells of it", () => {
    expect(outline([started(1, "Agent"), row(2, "status", { status: "Explore" }), ended(3, 1)])).toEqual(["1 Agent"]);
  });
});

describe("several sub-runs", () => {
  const rows = [
    started(5, "Agent"),
    started(6, "Task"),
    row(7, "status", { status: "Explore" }),
    row(8, "status", { status: "Plan" }),
    ended(9, 5),
    ended(10, 6),
  ];
  const runs = new Map([7, 8].map((seq) => [seq, { seq, kind: "run" } as Span]));

  it("have one line each with the calls that started them at the same time", () => {
    expect(outline(rows)).toEqual(["turn 1", "5 Agent", "6 Task"]);
    expect(itemsOf(rows, null, runs).filter(({ kind }) => kind === "call")).toHaveLength(2);
  });

  it("are told from the steps of other branches", () => {
    const step = row(7, "status", { status: "Other branch" });
    const steps = new Map([[7, { seq: 7, kind: "step" } as Span]]);
    expect(itemsOf([started(5, "Agent"), started(6, "Bash"), step], null)).toHaveLength(4);
    expect(itemsOf([started(6, "Agent"), step], null, steps)).toMatchObject([{ kind: "turn" }, {}, { kind: "status" }]);
  });
});

describe("the failures of a run", () => {
  it("are its failed calls, and the errors that are not those of a failed call", () => {
    const failed = [started(1, "A"), ended(2, 1, { error: "no" }), row(3, "error", { message: "no" })];
    expect(failuresOf(failed, null)).toEqual([1]);
    expect(failuresOf([...failed, row(4, "error", { message: "no key" })], null)).toEqual([1, 4]);
    expect(failuresOf([row(3, "error", { message: "no" })], null)).toEqual([3]);
    expect(failuresOf([row(3, "error", { message: "why" })], "why")).toEqual([]);
  });

  it("are not counted twice where the timeline has only the beginning of an error", () => {
    const error = "x".repeat(200);
    const rows = [started(1, "A"), ended(2, 1, { error }), row(3, "error", { message: `${error} and more` })];
    expect(failuresOf(rows, null)).toEqual([1]);
  });
});

it("finds the item of an event, of a result, and of a message after it", () => {
  const items = itemsOf([row(1, "status", { status: "x" }), started(4, "A"), ended(6, 4)], null);
  const found = (seq: number) => items[indexOfEvent(items, seq)]?.seq;
  expect([1, 2, 4, 5, 6, 9].map(found)).toEqual([1, 1, 4, 4, 4, 4]);
  expect(indexOfEvent([], 3)).toBe(-1);
});

it("compares bars with the longest call", () => {
  const items = itemsOf([started(1, "A"), ended(2, 1, { duration_ms: 900 }), started(3, "B")], null);
  expect(longestMs(items)).toBe(900);
  expect((items[0] as CallItem).durationMs).toBe(900);
});
