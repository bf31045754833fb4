import { describe, expect, it } from "vitest";
import type { TimelineRow } from "@/api";
import { lineOf } from "@/views/timelineRows";

const row = (event_type: TimelineRow["event_type"], data: Record<string, unknown>): TimelineRow => ({
  id: 1,
  event_type,
  data,
  created_at: "2026-11-15T10:00:00.000Z",
  seq: 12,
});

describe("a row of the timeline", () => {
  it("tells a status", () => {
    expect(lineOf(row("status", { status: "Run the linter" }))).toEqual({
      tone: "status",
      name: null,
      text: "Run the linter",
      duration: null,
      seq: 12,
    });
  });

  it("tells a tool that starts, with the most telling part of its input", () => {
    expect(lineOf(row("tool_started", { tool_name: "Bash", preview: "ls -a" }))).toMatchObject({
      tone: "started",
      name: "Bash",
      text: "ls -a",
      seq: 12,
    });
  });

  it("tells how long a tool took, and goes to its call", () => {
    const line = lineOf(row("tool_completed", { tool_name: "Bash", duration_ms: 4200, call_seq: 7 }));
    expect(line).toEqual({ tone: "completed", name: "Bash", text: "", duration: "4.2 s", seq: 7 });
  });

  it("goes to the result where the call is not known", () => {
    expect(lineOf(row("tool_completed", { tool_name: "Bash", duration_ms: null, call_seq: null }))).toMatchObject({
      seq: 12,
      duration: null,
    });
  });

  it("tells a failed tool with its error, on one line", () => {
    const line = lineOf(
      row("tool_completed", { tool_name: "Bash", duration_ms: 10, error: "exit code 1\n  no such file" }),
    );
    expect(line).toMatchObject({ tone: "failed", text: "exit code 1 no such file", duration: "10 ms" });
  });

  it("takes an empty error for an error", () => {
    expect(lineOf(row("tool_completed", { tool_name: "Bash", error: "" })).tone).toBe("failed");
  });

  it("tells an error by its message, or else by its code", () => {
    expect(lineOf(row("error", { message: "no room", code: "storage_full" })).text).toBe("no room");
    expect(lineOf(row("error", { code: "storage_full" })).text).toBe("storage_full");
    expect(lineOf(row("error", {}))).toMatchObject({ tone: "error", text: "error" });
  });

  it("tells what ended because the run was cancelled, and only that, as cancelled", () => {
    const why = "somebody cancelled it";
    expect(lineOf(row("error", { message: why, step: "sleep" }), why)).toMatchObject({ tone: "cancelled", text: why });
    expect(lineOf(row("tool_completed", { tool_name: "ask", error: why }), why).tone).toBe("cancelled");
    expect(lineOf(row("error", { message: "exit code 1" }), why).tone).toBe("error");
    expect(lineOf(row("tool_completed", { tool_name: "Bash" }), why).tone).toBe("completed");
    expect(lineOf(row("error", { message: why })).tone).toBe("error");
  });

  it("can do with data of any shape", () => {
    expect(lineOf(row("status", { status: { odd: 1 } })).text).toBe('{"odd":1}');
    expect(lineOf(row("tool_started", {}))).toMatchObject({ name: "tool", text: "" });
    expect(lineOf(row("tool_completed", { tool_name: 5, duration_ms: "x", call_seq: "y" }))).toMatchObject({
      name: "5",
      duration: null,
      seq: 12,
    });
  });
});
