/**
 * Turn a page of a log into the rows of a transcript. An event either has a row, at its `seq`, or is part of another
 * row: a result of its call's row, a piece of output of the first row of its group.
 */
import type { EventOf, LogEvent, Page } from "@/api";
import { isOutput, isReadable, hasOwnEvent, messageKindOf, type Output, stepKeyOf } from "./events";
import { isRecord } from "./json";
import {
  type CallRow,
  isFailed,
  type MessageRow,
  type OutputRow,
  type Row,
  type Rows,
  type StepRow,
  type SubRunRow,
} from "./rowTypes";
import { isMessageChunk } from "./streamingText";
import { isAgentTool, isReadTool } from "./toolIcons";

/** Approximate limit of a row of output: rows out of sight are not rendered, so rows must stay small. */
const OUTPUT_CHARS = 8_000;

const singleStepRows = new WeakMap<Page, Rows>();
const allRows = new WeakMap<Page, Rows>();

/** Return the rows of a page by `seq`, in order. A run of a single step needs no headings. */
export function rowsOf(page: Page, isSingleStep: boolean): Rows {
  const cache = isSingleStep ? singleStepRows : allRows;
  const cached = cache.get(page);
  if (cached) return cached;
  const rows = new RowBuilder(page, isSingleStep).rows();
  cache.set(page, rows);
  return rows;
}

/** Return the row that shows an event of the page: its own, the row it is part of, or else the next one. */
export function rowShowing(rows: Rows, seq: number): Row | undefined {
  const ownRow = rows.get(seq);
  if (ownRow) return ownRow;
  let next: Row | undefined;
  let last: Row | undefined;
  for (const row of rows.values()) {
    if (row.events.some((event) => event.seq === seq)) return row;
    if (row.seq > seq) next ??= row;
    last = row;
  }
  return next ?? last;
}

/** Whether the run waited after this event, for an answer or for a sub-run. */
function isWait(event: LogEvent): boolean {
  if (!isReadable(event)) return false;
  if (event.type === "tool.call") return event.payload.awaits != null;
  return event.type === "step.call_workflow.started" && event.payload.kind !== "agent";
}

type Draft<T> = { -readonly [K in keyof T]: T[K] };
interface OutputDraft {
  readonly events: LogEvent[];
  readonly pieces: Draft<OutputRow["pieces"][number]>[];
  chars: number;
}

/** Builds the rows of a page. */
class RowBuilder {
  readonly #rows = new Map<number, Row>();
  readonly #calls = new Map<string, (Draft<CallRow> & { events: LogEvent[] })[]>();
  readonly #subRuns = new Map<string, Draft<SubRunRow> & { events: LogEvent[] }>();
  readonly #toolUses = new Map<string, LogEvent>();
  /** The output row that may continue, and the step row without any event inside yet. */
  #output: OutputDraft | null = null;
  #step: (Draft<StepRow> & { events: LogEvent[] }) | null = null;
  #path = "";
  /** The prompts that are commands, by their step. */
  readonly #commands = new Map<string, Draft<MessageRow>>();

  constructor(
    readonly page: Page,
    readonly isSingleStep: boolean,
  ) {}

  rows(): Rows {
    this.page.events.forEach((event, index) => this.#addEvent(event, index));
    for (const event of this.page.laterEnds) {
      if (event.type === "tool.result") this.#addResult(event);
      else this.#addSubRunEnd(event);
    }
    return withReadsJoined(this.#rows);
  }

  #addEvent(event: LogEvent, index: number): void {
    if (!isReadable(event)) return this.#add({ ...this.#baseOf(event), kind: "unknown-event", event });
    switch (event.type) {
      case "message.user":
        return this.#addPrompt(event);
      case "message.assistant":
        return this.#addMessage(event, index);
      case "tool.call":
        return this.#addCall(event);
      case "tool.result":
        return this.#addResult(event)
          ? undefined
          : this.#add({ ...this.#baseOf(event), kind: "result", result: event });
      case "run.started":
        return this.#addAttempt(event, index);
      case "run.completed":
        return this.#add({ ...this.#baseOf(event), kind: "outcome", end: event });
      case "step.call_workflow.started":
        return this.#addSubRun(event);
      case "step.call_workflow.completed":
        return this.#addSubRunEnd(event)
          ? undefined
          : this.#add({ ...this.#baseOf(event), kind: "step", start: null, end: event });
      case "step.started":
        return this.#addStepStart(event);
      case "step.completed":
        return this.#addStepEnd(event, index);
    }
  }

  /** Show later attempts and inputs. An attempt that only resumes after a wait is not shown: the answer is. */
  #addAttempt(event: EventOf<"run.started">, index: number): void {
    const cached = this.page.events[index - 1];
    if (cached && isWait(cached)) return;
    const hasInput = !this.isSingleStep && Object.keys(event.payload.input ?? {}).length > 0;
    if (event.payload.attempt > 1 || hasInput) this.#add({ ...this.#baseOf(event), kind: "attempt", start: event });
  }

  /** In a run of a single step, show only retries and their reason: the outcome tells how the last try ended. */
  #addStepStart(event: EventOf<"step.started">): void {
    if (this.isSingleStep && event.payload.try === 1) return;
    const row = { ...this.#baseOf(event), kind: "step" as const, start: event, end: null };
    this.#add(row);
    this.#step = row;
  }

  #addStepEnd(event: EventOf<"step.completed">, index: number): void {
    const command = this.#commands.get(event.path);
    if (command && !command.end) command.end = event;
    const isLast = this.page.events[index + 1]?.type === "run.completed";
    if (this.isSingleStep && (event.payload.error == null || isLast)) return;
    const startRow = this.#step;
    if (startRow?.start && stepKeyOf(startRow.start) === stepKeyOf(event)) {
      startRow.end = event;
      startRow.events.push(event);
      this.#step = null;
    } else this.#add({ ...this.#baseOf(event), kind: "step", start: null, end: event });
  }

  #addPrompt(event: EventOf<"message.user">): void {
    const blocks = event.payload.blocks.filter((block) => !hasOwnEvent(block, event, this.page));
    if (!blocks.length && !event.payload.system_prompt) return;
    const row: Draft<MessageRow> = { ...this.#baseOf(event), kind: "prompt", message: event, blocks };
    if (blocks.some((block) => block.type === "command")) this.#commands.set(event.path, row);
    this.#add(row);
  }

  #addMessage(event: EventOf<"message.assistant">, index: number): void {
    // Shown as streaming text until the log has the complete message.
    if (isMessageChunk(event)) return;
    const { note, blocks: allBlocks } = event.payload;
    for (const block of allBlocks) if (block.type === "tool_use") this.#toolUses.set(block.tool_id, event);
    const blocks = allBlocks.filter((block) => !hasOwnEvent(block, event, this.page, index));
    const output = blocks.filter(isOutput);
    if (output.length && output.length === blocks.length && !note) this.#addOutput(event, output);
    else if (blocks.length || note)
      this.#add({ ...this.#baseOf(event), kind: messageKindOf(blocks), message: event, blocks });
  }

  #addOutput(event: EventOf<"message.assistant">, blocks: readonly Output[]): void {
    const chars = blocks.reduce((sum, block) => sum + block.text.length, 0);
    let output = this.#output;
    if (!output || this.#path !== event.path || output.chars + chars > OUTPUT_CHARS) {
      output = { events: [], pieces: [], chars: 0 };
      this.#add({ ...this.#baseOf(event), kind: "output", events: output.events, pieces: output.pieces });
      this.#output = output;
    }
    output.chars += chars;
    output.events.push(event);
    for (const { stream, text } of blocks) {
      const last = output.pieces.at(-1);
      if (last?.stream === stream) last.text += text;
      else output.pieces.push({ stream, text });
    }
  }

  #addCall(event: EventOf<"tool.call">): void {
    const id = event.payload.call_id;
    const toolUse = this.#toolUses.get(id);
    const row = {
      ...this.#baseOf(event),
      events: toolUse ? [event, toolUse] : [event],
      kind: "call" as const,
      call: event,
      result: null,
    };
    this.#calls.set(id, [...(this.#calls.get(id) ?? []), row]);
    this.#add(row);
  }

  /**
   * Add a result to its call. Return false if the call is on another page. Of several calls with one id, take the
   * oldest open one.
   */
  #addResult(result: EventOf<"tool.result">): boolean {
    const row = this.#calls.get(result.payload.call_id)?.find((candidate) => candidate.result === null);
    if (!row) return false;
    row.result = result;
    row.events.push(result);
    // The row of a sub-run shows its call too.
    for (const subRun of this.#subRuns.values()) if (subRun.toolCall === row) subRun.events.push(result);
    return true;
  }

  #addSubRun(event: EventOf<"step.call_workflow.started">): void {
    const toolCall = this.#callOf(event);
    if (toolCall) this.#rows.delete(toolCall.seq);
    const row = {
      ...this.#baseOf(event),
      events: [event, ...(toolCall?.events ?? [])],
      kind: "sub-run" as const,
      call: event,
      end: null,
      toolCall,
    };
    this.#subRuns.set(stepKeyOf(event), row);
    this.#add(row);
  }

  /** Return the call by which an agent started a sub-run: the last open one with the same prompt. */
  #callOf(event: EventOf<"step.call_workflow.started">): CallRow | null {
    if (event.payload.kind !== "agent") return null;
    const prompt = promptOf(event.payload.input);
    const open = [...this.#rows.values()].filter(
      (row): row is CallRow => row.kind === "call" && row.result === null && isAgentTool(row.call.payload.name),
    );
    return open.findLast(({ call }) => promptOf(call.payload.input) === prompt) ?? null;
  }

  #addSubRunEnd(event: EventOf<"step.call_workflow.completed">): boolean {
    const row = this.#subRuns.get(stepKeyOf(event));
    if (!row || row.end) return false;
    row.end = event;
    row.events.push(event);
    return true;
  }

  /** Return the common fields of a new row. A new row ends the current output and step rows. */
  #baseOf(event: LogEvent) {
    // A damaged log may lack fields that the types promise.
    const path = (event as { path?: string | null }).path ?? "";
    const stepPath = !this.isSingleStep && path && path !== this.#path ? path : null;
    this.#path = path;
    this.#output = null;
    this.#step = null;
    return { seq: event.seq, events: [event], stepPath };
  }

  #add(row: Row): void {
    this.#rows.set(row.seq, row);
  }
}

const promptOf = (input: unknown): unknown => (isRecord(input) ? input["prompt"] : null);

/** Join calls in a row that only read and did not fail; the joined row has the place of the first. */
function withReadsJoined(rows: ReadonlyMap<number, Row>): Rows {
  const joined = new Map<number, Row>();
  let last: Row | undefined;
  for (const row of rows.values()) {
    const calls = last && isRead(row) && row.stepPath === null ? readsIn(last) : [];
    if (last && isRead(row) && calls.length)
      last = {
        kind: "reads",
        seq: last.seq,
        stepPath: last.stepPath,
        calls: [...calls, row],
        events: [...last.events, ...row.events],
      };
    else last = row;
    joined.set(last.seq, last);
  }
  return joined;
}

const isRead = (row: Row): row is CallRow =>
  row.kind === "call" &&
  isReadTool(row.call.payload.name) &&
  !row.call.payload.awaits &&
  (row.result === null || !isFailed(row.result));

const readsIn = (row: Row): readonly CallRow[] => (row.kind === "reads" ? row.calls : isRead(row) ? [row] : []);
