/** Text as it is being typed, put together from the pieces that came. */
import type { Delta } from "@/api/types";

/** A block that is being typed. */
export interface Typing {
  readonly key: string;
  readonly kind: Delta["kind"];
  /** What is there to show; it begins with a mark where the beginning was missed. */
  readonly text: string;
  readonly toolName: string | null;
  /** How many characters of the block came, with those that were missed, as the server counts them: code points. */
  readonly length: number;
}

/** Stands for all that was missed, however much it was. */
const MISSED = "…";
/** How much of a block is kept until the log has it. */
const KEPT_CHARS = 200_000;

export const keyOf = (delta: Delta) => `${delta.path}/${delta.iteration ?? 0}/${delta.message_id}/${delta.block}`;

/** The block with one more piece. Pieces may be missing, and may come again. */
export function typed(before: Typing | undefined, delta: Delta): Typing {
  const length = before?.length ?? 0;
  const begun = before?.text ?? "";
  return {
    key: keyOf(delta),
    kind: delta.kind,
    text: kept(upTo(begun, length, delta.offset) + delta.text),
    toolName: delta.tool_name ?? before?.toolName ?? null,
    length: delta.offset + codePoints(delta.text),
  };
}

/** What stands before the place where the next piece belongs. */
function upTo(text: string, length: number, offset: number): string {
  if (offset === length) return text;
  if (offset > length) return text + MISSED;
  const characters = Array.from(text);
  return characters.slice(0, Math.max(0, characters.length - (length - offset))).join("");
}

function codePoints(text: string): number {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}

const kept = (text: string) => (text.length > KEPT_CHARS ? MISSED + text.slice(-KEPT_CHARS) : text);
