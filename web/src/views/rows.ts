/** The kinds of rows that a transcript has. */
import type { Block, EventOf, LogEvent } from "@/api";

/** What all rows have. */
interface Base {
  readonly seq: number;
  /** What the row is made of, its own event first. Made of the same events, a row is the same. */
  readonly events: readonly LogEvent[];
  /** The step, where it is another than that of the row before. */
  readonly place: string | null;
}

export type Message = EventOf<"message.user"> | EventOf<"message.assistant">;
export type StepEnd = EventOf<"step.completed"> | EventOf<"step.call_workflow.completed">;

export type MessageRow = Base & {
  readonly kind: "prompt" | "said" | "note" | "unparsed" | "unknown";
  readonly message: Message;
  /** Without tool uses and results that have an event of their own. */
  readonly blocks: readonly Block[];
};
export type OutputRow = Base & { readonly kind: "output"; readonly pieces: readonly Piece[] };
export type CallRow = Base & {
  readonly kind: "call";
  readonly call: EventOf<"tool.call">;
  readonly result: EventOf<"tool.result"> | null;
};
/** The result of a call that stands on an earlier page. */
export type ResultRow = Base & { readonly kind: "result"; readonly result: EventOf<"tool.result"> };
/** A step begins, or ends; both where nothing is between. */
export type StepRow = Base & {
  readonly kind: "step";
  readonly start: EventOf<"step.started"> | null;
  readonly end: StepEnd | null;
};
export type SubRunRow = Base & {
  readonly kind: "sub-run";
  readonly call: EventOf<"step.call_workflow.started">;
  readonly end: EventOf<"step.call_workflow.completed"> | null;
};
export type AttemptRow = Base & { readonly kind: "attempt"; readonly start: EventOf<"run.started"> };
export type OutcomeRow = Base & { readonly kind: "outcome"; readonly end: EventOf<"run.completed"> };
/** An event of a type or a shape that this page does not know. */
export type StrangeRow = Base & { readonly kind: "strange"; readonly event: LogEvent };

export type Row =
  MessageRow | OutputRow | CallRow | ResultRow | StepRow | SubRunRow | AttemptRow | OutcomeRow | StrangeRow;
export type Rows = ReadonlyMap<number, Row>;

/** Output of one stream, joined. */
export interface Piece {
  readonly stream: "stdout" | "stderr";
  readonly text: string;
}

export function isSameRow(one: Row, other: Row): boolean {
  return (
    one.kind === other.kind &&
    one.place === other.place &&
    one.events.length === other.events.length &&
    one.events.every((event, n) => event === other.events[n])
  );
}

export const isFailed = ({ payload }: EventOf<"tool.result">) =>
  payload.error != null || (payload.exit_code ?? 0) !== 0;

/** Whether it can be opened and closed. */
export function isFolding(row: Row): boolean {
  if (row.kind === "said") return row.blocks.some((block) => block.type === "thinking");
  if (row.kind === "prompt") return Boolean(row.message.type === "message.user" && row.message.payload.system_prompt);
  return ["call", "result", "sub-run", "attempt", "outcome", "step", "strange"].includes(row.kind);
}

/** Whether somebody has to see what is inside: it went wrong. */
export function opensByItself(row: Row): boolean {
  return (row.kind === "call" || row.kind === "result") && row.result !== null && isFailed(row.result);
}

/** Whether it is opened with all others: runs below have their own transcripts, and nobody wants all of them. */
export const opensWithAll = (row: Row) => row.kind === "call" || row.kind === "result" || row.kind === "said";

/** Whether opening all does anything to it. */
export const opens = (row: Row) => isFolding(row) && opensWithAll(row);

/** A guess of a row's height in pixels, until it is measured. */
export function guessedHeight(row: Row | undefined): number {
  if (!row) return 0;
  if (row.kind === "output")
    return 8 + 18 * row.pieces.reduce((lines, piece) => lines + piece.text.split("\n").length, 0);
  if (row.kind === "prompt" || row.kind === "said") return 60;
  return opensByItself(row) ? 160 : 30;
}
