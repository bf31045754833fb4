/** The kinds of rows of a transcript. */
import type { Block, EventOf, LogEvent } from "@/api";
import { tasksOf } from "./taskList";

/** Fields of all rows. */
interface Base {
  readonly seq: number;
  /** The events that the row shows, its own first. Rows of the same events are equal. */
  readonly events: readonly LogEvent[];
  /** The path of the step, if it differs from that of the previous row. */
  readonly stepPath: string | null;
}

export type Message = EventOf<"message.user"> | EventOf<"message.assistant">;
export type StepEnd = EventOf<"step.completed"> | EventOf<"step.call_workflow.completed">;

export type MessageRow = Base & {
  readonly kind: "prompt" | "message" | "note" | "unparsed" | "unknown";
  readonly message: Message;
  /** Without tool uses and results that have an event of their own. */
  readonly blocks: readonly Block[];
  /** For a command, the end of its step, if the page has it. */
  readonly end?: EventOf<"step.completed"> | null;
};
export type OutputRow = Base & { readonly kind: "output"; readonly pieces: readonly Piece[] };
export type CallRow = Base & {
  readonly kind: "call";
  readonly call: EventOf<"tool.call">;
  readonly result: EventOf<"tool.result"> | null;
};
/** Calls in a row that only read: folded, they are one line. */
export type ReadsRow = Base & { readonly kind: "reads"; readonly calls: readonly CallRow[] };
/** The result of a call on an earlier page. */
export type ResultRow = Base & { readonly kind: "result"; readonly result: EventOf<"tool.result"> };
/** The start of a step, its end, or both if nothing is in between. */
export type StepRow = Base & {
  readonly kind: "step";
  readonly start: EventOf<"step.started"> | null;
  readonly end: StepEnd | null;
};
export type SubRunRow = Base & {
  readonly kind: "sub-run";
  readonly call: EventOf<"step.call_workflow.started">;
  readonly end: EventOf<"step.call_workflow.completed"> | null;
  /** The call of a tool by which an agent started the sub-run; null if it was started in another way. */
  readonly toolCall: CallRow | null;
};
export type AttemptRow = Base & { readonly kind: "attempt"; readonly start: EventOf<"run.started"> };
export type OutcomeRow = Base & { readonly kind: "outcome"; readonly end: EventOf<"run.completed"> };
/** An event of a type or shape that the page does not know. */
export type UnknownEventRow = Base & { readonly kind: "unknown-event"; readonly event: LogEvent };

export type Row =
  | MessageRow
  | OutputRow
  | CallRow
  | ReadsRow
  | ResultRow
  | StepRow
  | SubRunRow
  | AttemptRow
  | OutcomeRow
  | UnknownEventRow;
export type Rows = ReadonlyMap<number, Row>;

/** Joined output of one stream. */
export interface Piece {
  readonly stream: "stdout" | "stderr";
  readonly text: string;
}

/** The last event that a row stands for: a call and its result are one row. The request for a call comes before it. */
export const lastSeqOf = ({ seq, events }: Row): number =>
  events.reduce((last, event) => Math.max(last, event.seq), seq);

export function isSameRow(a: Row, b: Row): boolean {
  return (
    a.kind === b.kind &&
    a.stepPath === b.stepPath &&
    endOf(a) === endOf(b) &&
    a.events.length === b.events.length &&
    a.events.every((event, n) => event === b.events[n])
  );
}

const endOf = (row: Row) => ("end" in row ? row.end : null);

export const isFailed = ({ payload }: EventOf<"tool.result">) =>
  payload.error != null || (payload.exit_code ?? 0) !== 0;

/** Whether the row can be expanded. */
export function isFoldable(row: Row): boolean {
  if (row.kind === "message") return row.blocks.some((block) => block.type === "thinking");
  if (row.kind === "prompt") return Boolean(row.message.type === "message.user" && row.message.payload.system_prompt);
  return ["call", "reads", "result", "sub-run", "attempt", "outcome", "step", "unknown-event"].includes(row.kind);
}

/** Whether the row is expanded by default: a call that failed, or a list of tasks. */
export function isOpenByDefault(row: Row): boolean {
  if (row.kind === "call" && tasksOf(row.call.payload.name, row.call.payload.input)) return true;
  return (row.kind === "call" || row.kind === "result") && row.result !== null && isFailed(row.result);
}

/** Whether "Expand all" expands the row. Sub-runs have transcripts of their own, which would be too much. */
export const isInExpandAll = (row: Row) =>
  row.kind === "call" || row.kind === "reads" || row.kind === "result" || row.kind === "message";

/** Whether "Expand all" changes the row. */
export const canExpand = (row: Row) => isFoldable(row) && isInExpandAll(row);

/** Estimate the height of a row in pixels, until it is measured. */
export function estimateHeight(row: Row | undefined): number {
  if (!row) return 0;
  if (row.kind === "output")
    return 8 + 18 * row.pieces.reduce((lines, piece) => lines + piece.text.split("\n").length, 0);
  if (row.kind === "prompt" || row.kind === "message") return 60;
  if (row.kind === "sub-run") return 64;
  return isOpenByDefault(row) ? 160 : 30;
}
