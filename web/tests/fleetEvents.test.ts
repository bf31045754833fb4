import { describe, expect, test } from "vitest";
import type { FleetEvent } from "../src/api";
import { BARS, eventText, isBad, rateOf, runOf, streamOf } from "../src/views/fleetEvents";

const NOW = Date.parse("2026-11-18T12:00:00Z");

const event = (type: string, payload: FleetEvent["payload"] = {}, secondsAgo = 0): FleetEvent => ({
  key: 1,
  type,
  payload,
  timestamp: new Date(NOW - secondsAgo * 1000).toISOString(),
});
const nameOf = (id: string) => `host ${id}`;

describe("a line of the strip", () => {
  test.each([
    ["agent.spawned", { providerId: "codex", process: { command: "codex" } }, "codex · codex"],
    ["agent.tool_call", { tool: { name: "Bash", input: { command: "go test ./..." } } }, "Bash go test ./..."],
    ["agent.tool_result", { tool: { name: "Bash", duration: 4200, success: false } }, "Bash · failed · 4.2 s"],
    ["agent.file_change", { file: { path: "a.py", linesAdded: 5, linesRemoved: 2 } }, "a.py +5 −2"],
    ["agent.file_change", { file: { path: "a.py", action: "delete" } }, "a.py delete"],
    ["agent.rate_limited", { providerId: "codex", action: { type: "wait", waitSeconds: 4 } }, "codex · waits 4.0 s"],
    ["agent.error", { error: { message: "oops" }, action: { type: "retry", retryCount: 2 } }, "oops · retry 2"],
    ["agent.completed", { providerId: "codex", metrics: { duration: 41_000, cost: 0.21 } }, "codex · 41.0 s · $0.21"],
    ["agent.completed", { providerId: "codex", metrics: { duration: null, cost: null } }, "codex"],
    ["agent.terminated", { providerId: "codex", reason: "user_cancel" }, "codex · user cancel"],
    ["worker.heartbeat", { workerId: "a", metrics: { cpuUsage: 22.4 } }, "host a · cpu 22 %"],
    ["worker.status_changed", { workerId: "a", current: "draining" }, "host a · draining"],
    ["worker.task_completed", { workerId: "a", result: { success: true, duration: 900 } }, "host a · done · 0.9 s"],
    ["worker.offline", { hostname: "box", reason: "timeout" }, "box · timeout"],
    ["provider.unavailable", { providerId: "openai", reason: "error", error: "503" }, "openai · error · 503"],
    ["provider.fallback", { from: { providerId: "a" }, to: { providerId: "b" } }, "a to b"],
    ["agent.of_tomorrow", { x: 1 }, ""],
    // A payload that is not as documented must not break the page.
    ["agent.tool_call", {}, ""],
    ["agent.thinking", { thinking: 3 }, "thinking"],
  ])("%s %j", (type, payload, text) => expect(eventText(event(type, payload), nameOf)).toBe(text));

  test("a long text stays on one line", () => {
    const text = eventText(event("agent.thinking", { thinking: { content: "word\n".repeat(100) } }), nameOf);
    expect(text).not.toContain("\n");
    expect(text.length).toBeLessThanOrEqual(120);
  });

  test("the run it is about", () => {
    expect(runOf(event("agent.ready", { taskId: "r" }))).toBe("r");
    expect(runOf(event("provider.available"))).toBeNull();
  });

  test("what went wrong", () => {
    expect(isBad(event("agent.error"))).toBe(true);
    expect(isBad(event("agent.tool_result", { tool: { success: false } }))).toBe(true);
    expect(isBad(event("agent.tool_result", { tool: { success: true } }))).toBe(false);
    expect(isBad(event("worker.offline", { reason: "shutdown" }))).toBe(false);
    expect(isBad(event("worker.offline", { reason: "timeout" }))).toBe(true);
  });

  test("its stream", () =>
    expect(["agent.x", "worker.x", "provider.x"].map((type) => streamOf({ type }))).toEqual([
      "agent",
      "worker",
      "provider",
    ]));
});

describe("events over time", () => {
  test("are counted in bars of a minute, the newest at the end", () => {
    const rate = rateOf(
      [event("agent.x", {}, 1), event("worker.x", {}, 30), event("agent.x", {}, 90)],
      false,
      NOW + 59_000,
    );
    expect(rate.minutes).toBe(60);
    expect(rate.bars).toHaveLength(BARS);
    expect(rate.bars.slice(-3).map(({ total }) => total)).toEqual([1, 2, 0]);
    expect(rate.bars.at(-2)?.counts).toEqual({ agent: 1, worker: 1, provider: 0 });
    expect(rate.highest).toBe(2);
  });

  test("an event stays in its bar while time passes", () => {
    const events = [event("agent.x", {}, 5)];
    const bar = (seconds: number) => rateOf(events, false, NOW + seconds * 1000).bars.findIndex(({ total }) => total);
    expect(bar(1)).toBe(bar(59));
    expect(bar(61)).toBe(bar(59) - 1);
  });

  test("cover only what is loaded", () => {
    const busy = [event("agent.x", {}, 0), event("agent.x", {}, 400)];
    expect(rateOf(busy, true, NOW).minutes).toBe(5);
    expect(rateOf(busy, false, NOW).minutes).toBe(60);
    expect(rateOf([], true, NOW).minutes).toBe(60);
  });

  test("leave out heartbeats, and what is older than the bars", () => {
    const rate = rateOf([event("worker.heartbeat"), event("agent.x", {}, 7200)], false, NOW);
    expect([rate.highest, rate.perMinute]).toEqual([0, 0]);
  });

  test("an event from a clock that is ahead is counted as now", () => {
    expect(rateOf([event("agent.x", {}, -30)], false, NOW).bars.at(-1)?.total).toBe(1);
  });
});
