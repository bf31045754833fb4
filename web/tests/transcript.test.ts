/**
 * The rows of the golden logs show every message and call once, and the same content as the server's archive. To
 * regenerate `web/tests/golden/archives.json`, run from the root of the repository:
 *
 *   .venv/bin/python - <<'END'
 *   import json, pathlib, re
 *   import msgspec
 *   from shopfloor.log import decode
 *   from shopfloor.views import archive
 *   test = pathlib.Path("web/tests/transcript.test.ts").read_text()
 *   made = {}
 *   for name in re.findall(r'^  "([\w/-]+)",$', test, re.M):
 *       lines = pathlib.Path(f"tests/golden/{name}.jsonl").read_bytes().splitlines()
 *       events = [decode(line) for line in lines]
 *       for run in dict.fromkeys(event.run_id for event in events):
 *           entries = archive([event for event in events if event.run_id == run])
 *           made[f"{name} {run}"] = msgspec.to_builtins(entries)
 *   pathlib.Path("web/tests/golden/archives.json").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n")
 *   END
 */
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import type { EventOf, LogEvent, Page } from "@/api";
import { asText } from "@/views/json";
import { type CallRow, isSameRow, canExpand, lastSeqOf, type Row, type Rows } from "@/views/rowTypes";
import { rowShowing, rowsOf } from "@/views/transcriptRows";
import archives from "./golden/archives.json";

const LOGS = [
  "claude-code",
  "command",
  "parent",
  "providers/claude-code/files",
  "providers/claude-code/nested",
  "providers/claude-code/thinking",
  "providers/claude-code/deny",
  "providers/claude-code/nasty",
  "providers/claude-code/sent_again",
  "providers/claude-code/rl_unified_warn",
  "providers/codex/agents",
  "providers/codex/mcp",
  "providers/codex/midstream_tool",
  "providers/copilot/abort",
  "providers/copilot/asked_again",
  "providers/gemini/loop",
  "providers/opencode/patch",
];

/** The logs in a file: the lines of sub-runs are between those of their parents. */
function logsIn(name: string): Map<string, LogEvent[]> {
  const file = new URL(`../../tests/golden/${name}.jsonl`, import.meta.url);
  const logs = new Map<string, LogEvent[]>();
  for (const line of readFileSync(file, "utf8").trimEnd().split("\n")) {
    const event = JSON.parse(line) as LogEvent;
    logs.set(event.run_id, [...(logs.get(event.run_id) ?? []), event]);
  }
  return logs;
}

const LOGGED = LOGS.flatMap((name) => [...logsIn(name)].map(([run, events]) => [`${name} ${run}`, events] as const));
const pageOf = (events: LogEvent[], later: Page["laterEnds"] = []): Page => ({ events, laterEnds: later });

interface RowContent {
  texts: string[];
  thoughts: string[];
  calls: string[];
  results: [number, string, string][];
}

/** The calls that a row shows: its own, those that only read, or the one that started a sub-run. */
function callsIn(row: Row): readonly CallRow[] {
  if (row.kind === "sub-run") return row.toolCall ? [row.toolCall] : [];
  return row.kind === "reads" ? row.calls : row.kind === "call" ? [row] : [];
}

function contentOf(rows: Rows): RowContent {
  const content: RowContent = { texts: [], thoughts: [], calls: [], results: [] };
  const result = ({ seq, payload }: EventOf<"tool.result">) =>
    content.results.push([seq, payload.call_id, payload.error ?? asText(payload.output)]);
  for (const row of rows.values()) {
    if (row.kind === "output") content.texts.push(...row.pieces.map((piece) => piece.text));
    for (const { call, result: end } of callsIn(row)) {
      content.calls.push(call.payload.call_id);
      if (end) result(end);
    }
    if (row.kind === "result") result(row.result);
    if (!("blocks" in row)) continue;
    for (const block of row.blocks) {
      if (block.type === "text") content.texts.push(block.text);
      if (block.type === "command") content.texts.push(block.command);
      if (block.type === "thinking") content.thoughts.push(block.thinking);
    }
  }
  content.results.sort(([one], [other]) => one - other);
  return content;
}

describe.each(LOGGED)("%s", (name, events) => {
  const rows = rowsOf(pageOf(events), false);

  it("has every text, thought, call and result in one row, in order", () => {
    const content = contentOf(rows);
    const blocks = events.flatMap((event) => ("blocks" in event.payload ? event.payload.blocks : []));
    expect(content.texts.join("")).toBe(
      blocks
        .map((block) => (block.type === "text" ? block.text : block.type === "command" ? block.command : ""))
        .join(""),
    );
    expect(content.thoughts).toEqual(blocks.flatMap((block) => (block.type === "thinking" ? [block.thinking] : [])));
    expect(content.calls).toEqual(
      events.flatMap((event) => (event.type === "tool.call" ? [event.payload.call_id] : [])),
    );
    expect(content.results.map(([seq]) => seq)).toEqual(
      events.flatMap((event) => (event.type === "tool.result" ? [event.seq] : [])),
    );
    const numbers = [...rows.keys()];
    expect(numbers).toEqual(numbers.toSorted((one, other) => one - other));
    for (const row of rows.values()) expect(row.events[0]?.seq).toBe(row.seq);
  });

  it("tells what the archive tells", () => {
    const content = contentOf(rows);
    const entries = (archives as Record<string, { role: string; content: Record<string, string>[] }[]>)[name] ?? [];
    const items = entries.flatMap((entry) => entry.content);
    const texts = items.filter((item) => item["type"] === "text").map((item) => item["text"]);
    expect(content.texts.join("")).toBe(texts.join(""));
    expect(content.calls).toEqual(items.filter((item) => item["type"] === "tool_call").map((item) => item["id"]));
    const results = items.filter((item) => item["type"] === "tool_result");
    expect(content.results.map(([, id]) => id)).toEqual(results.map((item) => item["call_id"]));
    content.results.forEach(([, , text], n) => {
      // The archive truncates long text and writes JSON on one line.
      const prefix = results[n]?.["text"]?.replace(/… \[cut: [\d,]+ bytes in all\]$/, "") ?? "";
      expect(text.replace(/\s+/g, "").startsWith(prefix.replace(/\s+/g, ""))).toBe(true);
    });
  });

  it("shows every event somewhere", () => {
    for (const event of events) expect(rowShowing(rows, event.seq)).toBeDefined();
  });
});

const [COMMAND] = logsIn("command").values();
const [AGENT] = logsIn("claude-code").values();
const [PARENT] = logsIn("parent").values();
const kinds = (rows: Rows) => [...rows.values()].map((row: Row) => `${row.seq} ${row.kind}`);

describe("the rows of a page", () => {
  it("have no headings where the run is one bare step", () => {
    expect(kinds(rowsOf(pageOf(COMMAND ?? []), true))).toEqual(["3 prompt", "4 output", "6 outcome"]);
    expect(kinds(rowsOf(pageOf(AGENT ?? []), true))).toEqual([
      "3 prompt",
      "4 message",
      "6 call",
      "8 message",
      "10 outcome",
    ]);
  });

  it("have the steps and sub-runs of a worker", () => {
    expect(kinds(rowsOf(pageOf(PARENT ?? []), false))).toEqual([
      ...["2 step", "3 step", "4 sub-run", "5 step", "7 step", "8 step", "10 step", "12 outcome"],
    ]);
  });

  it("say of a step in which nothing else happens in one row that it began and ended", () => {
    const row = rowsOf(pageOf(PARENT ?? []), false).get(8);
    expect(row?.kind === "step" && [row.start?.seq, row.end?.seq]).toEqual([8, 9]);
  });

  it("show a result at its call, and a use where it is called", () => {
    const rows = rowsOf(pageOf(AGENT ?? []), true);
    expect(rowShowing(rows, 7)?.seq).toBe(6);
    expect(rowShowing(rows, 5)?.seq).toBe(6);
    expect(rowShowing(rows, 2)?.seq).toBe(3);
  });

  it("have the result of a call from a later page; there it has a row, too", () => {
    const events = AGENT ?? [];
    const result = events[6];
    if (result?.type !== "tool.result") throw new Error("the golden log is another one");
    const first = rowsOf(pageOf(events.slice(0, 6), [result]), true);
    const call = first.get(6);
    expect(call?.kind === "call" && call.result).toBe(result);
    expect(kinds(rowsOf(pageOf(events.slice(6)), true))).toEqual(["7 result", "8 message", "10 outcome"]);
  });

  it("stay the same where a page grows behind them", () => {
    const events = AGENT ?? [];
    const [before, after] = [rowsOf(pageOf(events.slice(0, 6)), true), rowsOf(pageOf(events), true)];
    const same = (seq: number) => isSameRow(before.get(seq) as Row, after.get(seq) as Row);
    expect(same(4)).toBe(true);
    expect(same(6)).toBe(false);
  });

  it("are made once for a page", () => {
    const page = pageOf(AGENT ?? []);
    expect(rowsOf(page, true)).toBe(rowsOf(page, true));
  });
});

function printed(seq: number, text: string, stream: "stdout" | "stderr" = "stdout", path = "command"): LogEvent {
  return {
    ...{ seq, run_id: "r", type: "message.assistant", path, iteration: 0, timestamp: "2026-11-15T10:30:00.000Z" },
    payload: { role: "assistant", blocks: [{ type: "text", fidelity: "router", text, stream }] },
  };
}

describe("a command's output", () => {
  it("is joined, with what came from elsewhere told apart", () => {
    const rows = rowsOf(
      pageOf([printed(1, "one\n"), printed(2, "two\n"), printed(3, "oops\n", "stderr"), printed(4, "three\n")]),
      true,
    );
    const row = rows.get(1);
    expect(rows.size).toBe(1);
    expect(row?.kind === "output" && row.pieces).toEqual([
      { stream: "stdout", text: "one\ntwo\n" },
      { stream: "stderr", text: "oops\n" },
      { stream: "stdout", text: "three\n" },
    ]);
    expect(rowShowing(rows, 3)?.seq).toBe(1);
  });

  it("begins anew where a step does, and where a row would be too long", () => {
    const other = rowsOf(
      pageOf([printed(1, "a"), printed(2, "b", "stdout", "other"), printed(3, "c", "stdout", "other")]),
      false,
    );
    expect(kinds(other)).toEqual(["1 output", "2 output"]);
    expect(other.get(2)?.stepPath).toBe("other");
    const long = rowsOf(pageOf([1, 2, 3, 4].map((seq) => printed(seq, "x".repeat(5_000)))), true);
    expect(kinds(long)).toEqual(["1 output", "2 output", "3 output", "4 output"]);
  });
});

describe("what this page does not know", () => {
  const strange = (type: string, payload: unknown) => ({ ...printed(1, ""), type, payload }) as unknown as LogEvent;

  it("is shown, whatever it is", () => {
    const events = [
      strange("step.paused", { why: "lunch" }),
      strange("message.assistant", null),
      strange("message.assistant", { blocks: "none" }),
      strange("tool.call", { name: "x" }),
      strange("message.assistant", { blocks: [null] }),
    ].map((event, n) => ({ ...event, seq: n + 1 }));
    expect(kinds(rowsOf(pageOf(events), true))).toEqual([
      "1 unknown-event",
      "2 unknown-event",
      "3 unknown-event",
      "4 unknown-event",
      "5 unknown-event",
    ]);
  });

  it("is a block of a message, too", () => {
    const event = strange("message.assistant", { role: "assistant", blocks: [{ type: "hologram", data: 1 }] });
    expect(kinds(rowsOf(pageOf([event]), true))).toEqual(["1 unknown"]);
  });

  it("or a line that was not understood", () => {
    const event = strange("message.assistant", {
      role: "assistant",
      blocks: [{ type: "stream", chunk: "?", unparsed: true }],
    });
    expect(kinds(rowsOf(pageOf([event]), true))).toEqual(["1 unparsed"]);
  });

  it("or a tool use that came to no call", () => {
    const use = (seq: number) => ({
      ...strange("message.assistant", {
        role: "assistant",
        message_id: "m1",
        blocks: [{ type: "tool_use", tool_name: "Bash", tool_id: "t1", tool_input: {} }],
      }),
      seq,
    });
    expect(kinds(rowsOf(pageOf([use(1)]), true))).toEqual([]);
    const ended = { ...strange("step.completed", { name: "x", kind: "agent", try: 1 }), seq: 2 };
    expect(kinds(rowsOf(pageOf([use(1), ended]), true))).toEqual(["1 message"]);
  });
});

it("has something to open with all others where tools were called, or something was thought", () => {
  const opening = (name: string) =>
    [...logsIn(name).values()].some((events) => [...rowsOf(pageOf(events), false).values()].some(canExpand));
  expect(opening("command")).toBe(false);
  expect(opening("providers/claude-code/files")).toBe(true);
  expect(opening("providers/claude-code/thinking")).toBe(true);
});

describe("pieces of a message", () => {
  const at = { run_id: "r", path: "say", iteration: 0, timestamp: "2026-02-23T10:30:00.000Z" };
  const piece = (seq: number, offset: number, chunk: string): LogEvent => ({
    ...at,
    seq,
    type: "message.assistant",
    payload: {
      role: "assistant",
      message_id: "m",
      blocks: [{ type: "stream", fidelity: "agent_emitted", kind: "text", block: 0, offset, chunk }],
    },
  });
  const whole = (seq: number): LogEvent => ({
    ...at,
    seq,
    type: "message.assistant",
    payload: {
      role: "assistant",
      message_id: "m",
      blocks: [{ type: "text", fidelity: "agent_emitted", text: "Hello" }],
    },
  });

  it("make no row: their message does, on whichever page it stands", () => {
    expect([...rowsOf(pageOf([piece(1, 0, "Hel"), piece(2, 3, "lo"), whole(3)]), false).keys()]).toEqual([3]);
    expect(rowsOf(pageOf([piece(1, 0, "Hel"), piece(2, 3, "lo")]), false).size).toBe(0);
    expect([...rowsOf(pageOf([whole(3)]), false).keys()]).toEqual([3]);
  });
});

describe("an event", () => {
  const event = (seq: number, type: string, payload: Record<string, unknown>) =>
    ({ seq, type, path: "agent", iteration: 0, run_id: "r", payload }) as unknown as LogEvent;
  const request = event(1, "message.assistant", {
    role: "assistant",
    message_id: "m",
    blocks: [{ type: "tool_use", tool_name: "Bash", tool_id: "c", tool_input: {} }],
  });

  it("that a row ends with is the last one, not the last that was added", () => {
    const call = event(2, "tool.call", { name: "Bash", call_id: "c", input: {} });
    const rows = rowsOf(pageOf([request, call]), true);
    const row = rows.get(2);
    expect(row?.events.map(({ seq }) => seq)).toEqual([2, 1]);
    expect(row && lastSeqOf(row)).toBe(2);
  });

  it("without what its type needs is shown as it is", () => {
    for (const damaged of [
      event(1, "tool.call", { call_id: "c", input: {} }),
      event(1, "tool.result", { call_id: "c", name: null }),
      event(1, "step.started", { try: 1, kind: "agent" }),
      event(1, "step.completed", { try: 1, name: "a" }),
    ])
      expect(rowsOf(pageOf([damaged]), false).get(1)?.kind).toBe("unknown-event");
  });
});
