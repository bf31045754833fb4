/** How much of a long text is drawn. */

/** So much is shown as it is. */
export const WHOLE_CHARS = 100_000;
/** So much is shown where somebody asks for it; more is for a file. */
export const MOST_CHARS = 1_000_000;
const HEAD_CHARS = 40_000;
const TAIL_CHARS = 20_000;

export interface Ends {
  readonly head: string;
  readonly tail: string;
  /** How many characters are between the two. */
  readonly between: number;
}

/** The beginning and the end of a text that is too long to show, cut between lines; null where it is not. */
export function endsOf(text: string): Ends | null {
  if (text.length <= WHOLE_CHARS) return null;
  const head = text.slice(0, lineEnd(text, HEAD_CHARS));
  const tail = text.slice(lineEnd(text, text.length - TAIL_CHARS));
  return { head, tail, between: text.length - head.length - tail.length };
}

/** The place after the next end of a line, where one is near. */
function lineEnd(text: string, from: number): number {
  const end = text.indexOf("\n", from);
  return end >= 0 && end - from < 2_000 ? end + 1 : from;
}
