import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { PAGE_EVENTS, RunLog, type LogEvent } from "@/api";

const RUN = "0b0e7a4e-6f0c-4b39-9c38-0f1d2c3b4a59";

function message(seq: number, text = `said ${seq}`): LogEvent {
  return {
    seq,
    run_id: RUN,
    type: "message.assistant",
    path: "agent",
    iteration: 0,
    timestamp: "2026-02-23T10:30:00.000Z",
    payload: { role: "assistant", message_id: `m${seq}`, blocks: [{ type: "text", fidelity: "agent_emitted", text }] },
  };
}

function call(seq: number, id: string): LogEvent {
  return {
    ...message(seq),
    type: "tool.call",
    payload: { name: "Bash", call_id: id, input: {}, output: null, fidelity: "agent_emitted" },
  };
}

function result(seq: number, id: string): LogEvent {
  return {
    ...message(seq),
    type: "tool.result",
    payload: { name: "Bash", call_id: id, input: null, output: "ok", fidelity: "agent_emitted" },
  };
}

/** The events of the server, and the requests it got. */
let serverEvents: LogEvent[];
let requests: string[];
let isBroken: boolean;

beforeEach(() => {
  serverEvents = Array.from({ length: 1_000 }, (_, index) => message(index + 1));
  requests = [];
  isBroken = false;
  vi.stubGlobal("fetch", (request: Request) => {
    const url = new URL(request.url);
    requests.push(url.search);
    if (isBroken) return Promise.reject(new TypeError("no network"));
    const number = (name: string) => Number(url.searchParams.get(name));
    const events = serverEvents
      .filter((one) => one.seq > number("after") && one.seq < number("before"))
      .slice(0, number("limit"));
    return Promise.resolve(Response.json({ events, more: false, later: [] }));
  });
});

afterEach(() => vi.unstubAllGlobals());

describe("a log that is looked at", () => {
  it("loads the pages that are wanted, and each once", async () => {
    const log = new RunLog(RUN);
    log.extendTo(1_000);
    await Promise.all([log.load(450, 460), log.load(455, 470)]);
    expect(log.event(455)?.seq).toBe(455);
    expect(log.event(1)).toBeUndefined();
    await log.load(401, 600);
    expect(requests).toHaveLength(1);
    await log.load(600, 601);
    expect(requests).toHaveLength(2);
  });

  it("takes live events in, each once, also on a page that it has only a part of", async () => {
    const log = new RunLog(RUN);
    serverEvents = serverEvents.slice(0, 5);
    log.extendTo(5);
    await log.load(1, 5);
    log.append(message(6));
    log.append(message(6));
    log.append(message(5));
    expect(log.lastSeq).toBe(6);
    expect(log.page(0)?.events.map((one) => one.seq)).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it("begins a page with a live event that is its first", () => {
    const log = new RunLog(RUN);
    log.append(message(PAGE_EVENTS + 1));
    expect(log.page(1)?.events).toHaveLength(1);
    expect(log.page(0)).toBeUndefined();
  });

  it("loads a page again that a live event has left a gap in", async () => {
    const log = new RunLog(RUN);
    serverEvents = serverEvents.slice(0, 9);
    log.extendTo(3);
    await log.load(1, 3);
    expect(log.page(0)?.events).toHaveLength(9);
    serverEvents = Array.from({ length: 12 }, (_, index) => message(index + 1));
    log.append(message(12));
    expect(log.event(12)).toBeUndefined();
    await log.load(1, 12);
    expect(log.page(0)?.events.map((one) => one.seq)).toEqual(serverEvents.map((one) => one.seq));
  });

  it("keeps what came live while a page was on its way", async () => {
    const log = new RunLog(RUN);
    serverEvents = [message(1), message(2)];
    log.extendTo(2);
    log.append(message(1));
    const loading = log.load(1, 2);
    log.append(message(2));
    log.append(message(3));
    await loading;
    expect(log.page(0)?.events.map((one) => one.seq)).toEqual([1, 2, 3]);
  });

  it("joins live events to an older answer, though nothing of their page was there when they came", async () => {
    const log = new RunLog(RUN);
    serverEvents = Array.from({ length: 5 }, (_, index) => message(index + 1));
    log.extendTo(5);
    const loading = log.load(1, 5);
    for (const seq of [6, 7, 8]) log.append(message(seq));
    await loading;
    expect(log.page(0)?.events.map((one) => one.seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(log.lacks(1, 8)).toBe(false);
    log.append(message(9));
    expect(log.event(9)?.seq).toBe(9);
  });

  it("lacks what an answer did not have yet, but nothing that is on its way", async () => {
    const log = new RunLog(RUN);
    serverEvents = Array.from({ length: 5 }, (_, index) => message(index + 1));
    expect(log.lacks(1, PAGE_EVENTS)).toBe(false);
    log.extendTo(5);
    expect(log.lacks(1, PAGE_EVENTS)).toBe(true);
    const loading = log.load(1, PAGE_EVENTS);
    log.extendTo(7);
    expect(log.lacks(1, PAGE_EVENTS)).toBe(false);
    await loading;
    expect(log.lacks(1, PAGE_EVENTS)).toBe(true);
    serverEvents.push(message(6), message(7));
    await log.load(1, PAGE_EVENTS);
    expect(log.lacks(1, PAGE_EVENTS)).toBe(false);
  });

  it("takes nothing from an answer that is older than the loss of the log's end", async () => {
    const log = new RunLog(RUN);
    serverEvents = Array.from({ length: 9 }, (_, index) => message(index + 1));
    log.extendTo(9);
    const loading = log.load(1, 9);
    log.reset(4);
    await loading;
    expect(log.lastSeq).toBe(4);
    expect(log.event(5)).toBeUndefined();
    expect(log.lacks(1, 4)).toBe(true);
  });

  it("tells an earlier page of what ended its call", async () => {
    const log = new RunLog(RUN);
    serverEvents[PAGE_EVENTS - 1] = call(PAGE_EVENTS, "c1");
    serverEvents = serverEvents.slice(0, PAGE_EVENTS);
    log.extendTo(PAGE_EVENTS);
    await log.load(1, PAGE_EVENTS);
    log.append(result(PAGE_EVENTS + 1, "c1"));
    expect(log.page(0)?.laterEnds.map((one) => one.seq)).toEqual([PAGE_EVENTS + 1]);
  });

  it("says what is wrong, and can be asked again", async () => {
    const log = new RunLog(RUN);
    log.extendTo(10);
    isBroken = true;
    await log.load(1, 10);
    expect(log.problem?.code).toBe("unreachable");
    // Otherwise the page would request the events again without a pause.
    expect(log.lacks(1, 10)).toBe(false);
    isBroken = false;
    await log.load(1, 10);
    expect(log.problem).toBeNull();
    expect(log.event(10)?.seq).toBe(10);
  });

  it("forgets what the log has lost", async () => {
    const log = new RunLog(RUN);
    log.extendTo(1_000);
    await log.load(1, 1_000);
    log.reset(450);
    expect(log.lastSeq).toBe(450);
    expect(log.event(451)).toBeUndefined();
    expect(log.event(1)?.seq).toBe(1);
  });

  it("keeps a bounded number of pages, those that were looked at last", async () => {
    const log = new RunLog(RUN);
    serverEvents = Array.from({ length: 100 * PAGE_EVENTS }, (_, index) => message(index + 1, ""));
    log.extendTo(serverEvents.length);
    for (let page = 0; page < 100; page++) await log.load(page * PAGE_EVENTS + 1, page * PAGE_EVENTS + 1);
    const loaded = Array.from({ length: 100 }, (_, page) => log.page(page)).filter(Boolean).length;
    expect(loaded).toBe(60);
    expect(log.page(99)).toBeDefined();
  });

  it("gets an event whole only where it was cut", async () => {
    const log = new RunLog(RUN);
    serverEvents[0] = { ...message(1, "sho"), cut: 5_000 };
    log.extendTo(10);
    await log.load(1, 10);
    await log.fullEvent(2);
    expect(requests).toHaveLength(1);
    serverEvents[0] = message(1, "short no more");
    expect(await log.fullEvent(1)).toEqual(serverEvents[0]);
    expect(requests.at(-1)).toContain("brief=false");
  });
});

describe("what is being typed", () => {
  const delta = (offset: number, text: string, block = 0) =>
    ({ after: 1, path: "agent", message_id: "m2", block, kind: "text", offset, text }) as const;

  it("grows, and is gone when the log has it", () => {
    const log = new RunLog(RUN);
    log.append(message(1));
    log.appendDelta(delta(0, "Hel"));
    log.appendDelta(delta(3, "lo"));
    log.appendDelta(delta(0, "Second", 1));
    expect(log.streaming.map((one) => one.text)).toEqual(["Hello", "Second"]);
    log.append(message(2));
    expect(log.streaming).toEqual([]);
  });

  it("shows with one mark that something was missed, at the beginning or later", () => {
    const log = new RunLog(RUN);
    log.appendDelta(delta(300, "lo"));
    log.appendDelta(delta(302, " and"));
    expect(log.streaming[0]?.text).toBe("…lo and");
    log.appendDelta(delta(400, " more"));
    expect(log.streaming[0]?.text).toBe("…lo and… more");
  });

  it("counts characters as the server does, of which some are two to a browser", () => {
    const log = new RunLog(RUN);
    log.appendDelta(delta(0, "😀😀"));
    log.appendDelta(delta(2, " smile"));
    log.appendDelta(delta(2, " smiles"));
    expect(log.streaming[0]?.text).toBe("😀😀 smiles");
  });

  it("takes a piece that is told again in place of the first", () => {
    const log = new RunLog(RUN);
    log.appendDelta(delta(0, "Hello"));
    log.appendDelta(delta(0, "Hello"));
    expect(log.streaming[0]?.text).toBe("Hello");
  });

  const piece = (seq: number, offset: number, chunk: string, block = 0): LogEvent => ({
    ...message(seq),
    type: "message.assistant",
    payload: {
      role: "assistant",
      message_id: "m9",
      blocks: [{ type: "stream", fidelity: "agent_emitted", kind: "text", block, offset, chunk }],
    },
  });
  const nine = (offset: number, text: string) => ({ ...delta(offset, text), message_id: "m9" });

  it("is one text, told live and by pieces of the log, in whatever order they come", () => {
    const log = new RunLog(RUN);
    log.append(message(1));
    log.appendDelta(nine(0, "Hello "));
    log.appendDelta(nine(6, "world, "));
    log.append(piece(2, 0, "Hello wor"));
    log.appendDelta(nine(13, "how are you?"));
    expect(log.streaming.map((one) => one.text)).toEqual(["Hello world, how are you?"]);
    log.append({ ...message(3), payload: { ...message(9).payload } } as LogEvent);
    expect(log.streaming).toEqual([]);
  });

  it("has its beginning from the log where somebody comes in the middle", async () => {
    serverEvents = [message(1), piece(2, 0, "Hello "), piece(3, 6, "wor")];
    const log = new RunLog(RUN);
    log.extendTo(3);
    log.appendDelta(nine(14, "how"));
    expect(log.streaming[0]?.text).toBe("…how");
    await log.load(1, 3);
    expect(log.streaming[0]?.text).toBe("Hello wor…how");
    log.append(piece(4, 9, "ld, sh"));
    expect(log.streaming[0]?.text).toBe("Hello world, show");
  });

  it("is nothing where the whole stands on the same page, or the page is not the last", async () => {
    serverEvents = [
      ...Array.from({ length: PAGE_EVENTS - 1 }, (_, index) => message(index + 100)).map((one, index) => ({
        ...one,
        seq: index + 1,
      })),
      piece(PAGE_EVENTS, 0, "Hel"),
      { ...message(9), seq: PAGE_EVENTS + 1 },
    ];
    const log = new RunLog(RUN);
    log.extendTo(PAGE_EVENTS + 1);
    await log.load(1, PAGE_EVENTS);
    expect(log.streaming).toEqual([]);
    await log.load(PAGE_EVENTS + 1, PAGE_EVENTS + 1);
    expect(log.streaming).toEqual([]);
  });

  it("goes with the step and with the run, if no whole ever came", () => {
    const log = new RunLog(RUN);
    log.append(piece(1, 0, "Hel"));
    log.append({ ...message(2), type: "step.completed", payload: { name: "agent", kind: "agent", try: 1 } });
    expect(log.streaming).toEqual([]);
  });
});
