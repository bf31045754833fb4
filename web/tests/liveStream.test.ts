import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LiveStream } from "../src/api/liveStream";
import { aRun } from "./runs";

/** A connection that the test plays the server of. */
class FakeSource extends EventTarget {
  static readonly all: FakeSource[] = [];
  isClosed = false;
  constructor(readonly url: string) {
    super();
    FakeSource.all.push(this);
  }
  close = () => void (this.isClosed = true);
  send(name: string, data: unknown = {}): void {
    this.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data) }));
  }
}
const newest = () => FakeSource.all.at(-1) as FakeSource;

let stream: LiveStream;

beforeEach(() => {
  vi.useFakeTimers();
  FakeSource.all.length = 0;
  vi.stubGlobal("EventSource", FakeSource);
  vi.stubGlobal("document", Object.assign(new EventTarget(), { visibilityState: "visible" }));
  vi.stubGlobal("addEventListener", vi.fn());
  stream = new LiveStream(new QueryClient());
  stream.start();
});
afterEach(() => {
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("a connection that opens and sends nothing is not live", async () => {
  newest().send("ready");
  expect(stream.connection).toBe("live");
  stream.follow("a run");
  await vi.advanceTimersByTimeAsync(0);
  expect(FakeSource.all).toHaveLength(2);
  await vi.advanceTimersByTimeAsync(46_000);
  expect(stream.connection).toBe("lost");
  expect(FakeSource.all.length).toBeGreaterThan(2);
});

test("a silent connection stays live as long as it has heartbeats", async () => {
  newest().send("ready");
  for (let seconds = 0; seconds < 90; seconds += 15) {
    await vi.advanceTimersByTimeAsync(15_000);
    newest().send("heartbeat");
  }
  expect(stream.connection).toBe("live");
  expect(FakeSource.all).toHaveLength(1);
});

test("a run that was interrupted is followed again once it is resumed", async () => {
  const run = aRun({ id: "r", status: "running", completed_at: null });
  stream.follow("r");
  await vi.advanceTimersByTimeAsync(0);
  newest().send("ready");
  expect(newest().url).toContain("runs=r:0");
  newest().send("end", { run_id: "r" });
  newest().send("run", { ...run, interrupted: true });
  await vi.advanceTimersByTimeAsync(100);
  const before = FakeSource.all.length;
  newest().send("run", run);
  await vi.advanceTimersByTimeAsync(100);
  expect(FakeSource.all).toHaveLength(before + 1);
  expect(newest().url).toContain("runs=r:0");
});

test("events that were missed while the connection was lost are counted", async () => {
  stream.follow("r");
  await vi.advanceTimersByTimeAsync(0);
  newest().send("ready");
  newest().dispatchEvent(new Event("error"));
  expect(stream.connection).toBe("lost");
  await vi.advanceTimersByTimeAsync(300);
  newest().send("ready");
  for (const seq of [1, 2]) newest().send("log", { run_id: "r", event: { seq, type: "log.line", payload: {} } });
  await vi.advanceTimersByTimeAsync(1_000);
  expect(stream.missed).toBe(2);
  newest().send("log", { run_id: "r", event: { seq: 3, type: "log.line", payload: {} } });
  expect(stream.missed).toBe(2);
});
