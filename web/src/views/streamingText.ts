/** Text that is being generated, assembled from the pieces that have arrived. */
import type { Delta, LogEvent } from "@/api/types";
import { isRead } from "./events";

/** A block of a message that is being generated. */
export interface Typing {
  readonly key: string;
  readonly kind: Delta["kind"];
  /** The text to show, with a mark for each missing part. */
  readonly text: string;
  readonly toolName: string | null;
  /** The parts that have arrived, in order, with gaps between them. */
  readonly parts: readonly Part[];
}

/** Text with its position in the block, in code points as the server counts. */
interface Part {
  readonly offset: number;
  readonly end: number;
  readonly text: string;
}

/** The mark for a missing part of any length. */
const MISSED = "…";
/** How much of a block is kept until the log has it. */
const KEPT_CHARS = 200_000;

export const keyOf = (delta: Delta) => `${delta.path}/${delta.iteration ?? 0}/${delta.message_id}/${delta.block}`;

/** Whether an event holds pieces of a message that was not complete when it was logged. */
export const isPiece = (event: LogEvent) => deltasOf(event).length > 0;

/** Return the pieces in an event in the form of live deltas; none where the event is complete. */
function deltasOf(event: LogEvent): Delta[] {
  if (event.type !== "message.assistant" || !isRead(event)) return [];
  const { path, iteration, seq: after } = event;
  const message_id = event.payload.message_id ?? "";
  const deltas = event.payload.blocks.flatMap((one) => {
    if (one.type !== "stream" || one.kind == null || one.block == null || one.offset == null) return [];
    const { kind, block, offset, chunk: text, tool_name = null, tool_id = null } = one;
    return [{ after, path, iteration, message_id, block, kind, offset, text, tool_name, tool_id }];
  });
  return deltas.length === event.payload.blocks.length ? deltas : [];
}

/** Return the blocks of messages that these events have pieces of, but not the whole. */
export function typingIn(events: readonly LogEvent[], known: readonly Typing[] = []): Typing[] {
  let typing = [...known];
  for (const event of events) {
    const deltas = deltasOf(event);
    typing = deltas.length ? deltas.reduce(withDelta, typing) : withoutMessage(typing, event);
  }
  return typing;
}

export function withDelta(typing: readonly Typing[], delta: Delta): Typing[] {
  const before = typing.find((one) => one.key === keyOf(delta));
  const now = typed(before, delta);
  return before ? typing.map((one) => (one === before ? now : one)) : [...typing, now];
}

/** Return the blocks without a message that the log has in full, or without those of an ended step. */
function withoutMessage(typing: Typing[], event: LogEvent): Typing[] {
  if (typing.length === 0) return typing;
  if (event.type === "run.completed") return [];
  // A damaged log may lack fields that the types promise.
  const { path, iteration } = event as { path?: string | null; iteration?: number | null };
  const place = `${path ?? ""}/${iteration ?? 0}/`;
  if (event.type === "step.completed") return typing.filter((one) => !one.key.startsWith(place));
  if (event.type !== "message.assistant") return typing;
  const message = `${place}${(isRead(event) && event.payload.message_id) || ""}/`;
  return typing.filter((one) => !one.key.startsWith(message));
}

/** Return the block with one more piece. Pieces may be missing, repeated or late: the log has them a little later. */
export function typed(before: Typing | undefined, delta: Delta): Typing {
  const end = delta.offset + codePoints(delta.text);
  const parts = joined([...(before?.parts ?? []), { offset: delta.offset, end, text: delta.text }]);
  return {
    key: keyOf(delta),
    kind: delta.kind,
    text: (parts[0]?.offset ? MISSED : "") + parts.map((part) => part.text).join(MISSED),
    toolName: delta.tool_name ?? before?.toolName ?? null,
    parts,
  };
}

/** Sort the parts and join those that touch. */
function joined(parts: readonly Part[]): Part[] {
  const made: Part[] = [];
  for (const part of parts.toSorted((one, other) => one.offset - other.offset)) {
    const last = made.at(-1);
    if (last === undefined || part.offset > last.end) made.push(part);
    else if (part.end > last.end)
      made[made.length - 1] = kept({ offset: last.offset, end: part.end, text: last.text + after(part, last.end) });
  }
  return made;
}

const after = ({ offset, text }: Part, end: number) =>
  end === offset
    ? text
    : Array.from(text)
        .slice(end - offset)
        .join("");

function codePoints(text: string): number {
  return Array.from(text).length;
}

function kept(part: Part): Part {
  if (part.text.length <= KEPT_CHARS) return part;
  const text = part.text.slice(-KEPT_CHARS);
  return { offset: part.end - codePoints(text), end: part.end, text };
}
