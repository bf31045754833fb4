/** How much of a long text is rendered. */

/** Text up to this length is shown in full. */
export const MAX_FULL_CHARS = 100_000;
/** Text up to this length is shown on request; longer text is offered as a file. */
export const MAX_CHARS = 1_000_000;
const HEAD_CHARS = 40_000;
const TAIL_CHARS = 20_000;

export interface Ends {
  readonly head: string;
  readonly tail: string;
  /** How many characters are left out. */
  readonly hiddenChars: number;
}

/**
 * Return the beginning and the end of a text that is too long to show, cut at line breaks; null if it is not too
 * long.
 */
export function endsOf(text: string): Ends | null {
  if (text.length <= MAX_FULL_CHARS) return null;
  const head = text.slice(0, lineEnd(text, HEAD_CHARS));
  const tail = text.slice(lineEnd(text, text.length - TAIL_CHARS));
  return { head, tail, hiddenChars: text.length - head.length - tail.length };
}

/** The last lines of a text, and the hidden lines before them. */
export interface Tail {
  readonly hidden: string;
  /** How many lines are hidden. */
  readonly lines: number;
  readonly tail: string;
}

/** Fewer hidden lines than this are shown. */
const MIN_HIDDEN_LINES = 3;

/** Return the last `maxLines` lines of a text; null if few lines would be hidden. */
export function tailOf(text: string, maxLines: number): Tail | null {
  const end = text.endsWith("\n") ? text.length - 1 : text.length;
  let from = end;
  for (let line = 0; line < maxLines; line++) {
    from = text.lastIndexOf("\n", from - 1);
    if (from <= 0) return null;
  }
  const lines = countLines(text, from);
  return lines <= MIN_HIDDEN_LINES ? null : { hidden: text.slice(0, from), lines, tail: text.slice(from + 1) };
}

function countLines(text: string, to: number): number {
  let lines = 1;
  for (let at = text.indexOf("\n"); at >= 0 && at < to; at = text.indexOf("\n", at + 1)) lines++;
  return lines;
}

/** Return the position after the next line break, if one is near. */
function lineEnd(text: string, from: number): number {
  const end = text.indexOf("\n", from);
  return end >= 0 && end - from < 2_000 ? end + 1 : from;
}
