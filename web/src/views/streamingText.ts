/** Text that is being generated, assembled from the chunks in the log and the live deltas. */
import type { Delta, LogEvent } from "@/api/types";
import { isReadable } from "./events";

/** A block of a message that is being generated. */
export interface StreamingBlock {
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
const MISSING_MARK = "…";
/** How much of a block is kept until the log has it. */
const MAX_CHARS = 200_000;

export const keyOf = (delta: Delta) => `${delta.path}/${delta.iteration ?? 0}/${delta.message_id}/${delta.block}`;

/** Whether an event holds chunks of a message that was not complete when it was logged. */
export const isMessageChunk = (event: LogEvent) => deltasOf(event).length > 0;

/** Return the chunks in an event in the form of live deltas; none if the event is complete. */
function deltasOf(event: LogEvent): Delta[] {
  if (event.type !== "message.assistant" || !isReadable(event)) return [];
  const { path, iteration, seq: after } = event;
  const message_id = event.payload.message_id ?? "";
  const deltas = event.payload.blocks.flatMap((candidate) => {
    if (candidate.type !== "stream" || candidate.kind == null || candidate.block == null || candidate.offset == null)
      return [];
    const { kind, block, offset, chunk: text, tool_name = null, tool_id = null } = candidate;
    return [{ after, path, iteration, message_id, block, kind, offset, text, tool_name, tool_id }];
  });
  return deltas.length === event.payload.blocks.length ? deltas : [];
}

/** Return the blocks of messages of which these events have chunks, but not the complete message. */
export function streamingIn(events: readonly LogEvent[], known: readonly StreamingBlock[] = []): StreamingBlock[] {
  let blocks = [...known];
  for (const event of events) {
    const deltas = deltasOf(event);
    blocks = deltas.length ? deltas.reduce(withDelta, blocks) : withoutFinished(blocks, event);
  }
  return blocks;
}

export function withDelta(blocks: readonly StreamingBlock[], delta: Delta): StreamingBlock[] {
  const before = blocks.find((candidate) => candidate.key === keyOf(delta));
  const now = blockWithDelta(before, delta);
  return before ? blocks.map((candidate) => (candidate === before ? now : candidate)) : [...blocks, now];
}

/** Return the blocks without a message that the log has in full, or without those of an ended step. */
function withoutFinished(blocks: StreamingBlock[], event: LogEvent): StreamingBlock[] {
  if (blocks.length === 0) return blocks;
  if (event.type === "run.completed") return [];
  // A damaged log may lack fields that the types promise.
  const { path, iteration } = event as { path?: string | null; iteration?: number | null };
  const stepKey = `${path ?? ""}/${iteration ?? 0}/`;
  if (event.type === "step.completed") return blocks.filter((candidate) => !candidate.key.startsWith(stepKey));
  if (event.type !== "message.assistant") return blocks;
  const message = `${stepKey}${(isReadable(event) && event.payload.message_id) || ""}/`;
  return blocks.filter((candidate) => !candidate.key.startsWith(message));
}

/** Return the block with one more delta. Deltas may be missing, repeated or late: the log has them a little later. */
export function blockWithDelta(before: StreamingBlock | undefined, delta: Delta): StreamingBlock {
  const end = delta.offset + codePoints(delta.text);
  const parts = joinParts([...(before?.parts ?? []), { offset: delta.offset, end, text: delta.text }]);
  return {
    key: keyOf(delta),
    kind: delta.kind,
    text: (parts[0]?.offset ? MISSING_MARK : "") + parts.map((part) => part.text).join(MISSING_MARK),
    toolName: delta.tool_name ?? before?.toolName ?? null,
    parts,
  };
}

/** Sort the parts and join those that touch. */
function joinParts(parts: readonly Part[]): Part[] {
  const result: Part[] = [];
  for (const part of parts.toSorted((candidate, next) => candidate.offset - next.offset)) {
    const last = result.at(-1);
    if (last === undefined || part.offset > last.end) result.push(part);
    else if (part.end > last.end)
      result[result.length - 1] = limited({
        offset: last.offset,
        end: part.end,
        text: last.text + textAfter(part, last.end),
      });
  }
  return result;
}

const textAfter = ({ offset, text }: Part, end: number) =>
  end === offset
    ? text
    : Array.from(text)
        .slice(end - offset)
        .join("");

function codePoints(text: string): number {
  return Array.from(text).length;
}

function limited(part: Part): Part {
  if (part.text.length <= MAX_CHARS) return part;
  const text = part.text.slice(-MAX_CHARS);
  return { offset: part.end - codePoints(text), end: part.end, text };
}
