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

/** The last lines of a text, without what is above them. */
export interface Tail {
  readonly hidden: string;
  /** How many lines are hidden. */
  readonly lines: number;
  readonly tail: string;
}

/** So few lines more are shown rather than hidden. */
const LEAST_HIDDEN = 3;

/** The last lines of a text, so many of them; null where there are few more. */
export function tailOf(text: string, most: number): Tail | null {
  const end = text.endsWith("\n") ? text.length - 1 : text.length;
  let from = end;
  for (let line = 0; line < most; line++) {
    from = text.lastIndexOf("\n", from - 1);
    if (from <= 0) return null;
  }
  const lines = countLines(text, from);
  return lines <= LEAST_HIDDEN ? null : { hidden: text.slice(0, from), lines, tail: text.slice(from + 1) };
}

function countLines(text: string, to: number): number {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0 && at < to; at = text.indexOf("\n", at + 1)) lines++;
  return lines;
}

/** The place after the next end of a line, where one is near. */
function lineEnd(text: string, from: number): number {
  const end = text.indexOf("\n", from);
  return end >= 0 && end - from < 2_000 ? end + 1 : from;
}
