/** Which text is rendered as Markdown, and which links are followed. */

/** Longer text, or text with more lines, is shown as it is. */
const MOST_CHARS = 40_000;
const MOST_LINES = 1_200;
/** How many special characters a paragraph may have: parsing time grows with their square. */
const MOST_MARKS = 400;
const MOST_MARKS_IN_ALL = 5_000;
/** How many underlines of headings there may be, for the same reason. */
const MOST_UNDERLINES = 100;
const DEEPEST = 12;

const MARK = /[*_~`[\]<>|@&=\-\\!(]/g;
const UNDERLINE = /^ {0,3}(?:=+|-+)[ \t]*$/gm;
const ITEM = "(?:>|[-*+]|\\d+[.)])";
const DEEP = new RegExp(`^[ \\t]*(?:${ITEM}[ \\t]*){${DEEPEST}}|^ {${DEEPEST * 4}}[ \\t]*${ITEM}`, "m");

/**
 * Whether a text can be parsed as Markdown quickly. Some texts take minutes, or more memory than there is: whoever
 * writes to a transcript could freeze the page of its readers.
 */
export function isTame(text: string): boolean {
  if (text.length > MOST_CHARS || DEEP.test(text)) return false;
  if (countOf(text, /\n/g) > MOST_LINES || countOf(text, UNDERLINE) > MOST_UNDERLINES) return false;
  if (countOf(text, MARK) > MOST_MARKS_IN_ALL) return false;
  return text.split(/\n[ \t]*\n/).every((paragraph) => countOf(paragraph, MARK) <= MOST_MARKS);
}

const countOf = (text: string, pattern: RegExp) => text.match(pattern)?.length ?? 0;

const MEANT = /[*_`[\]<>#|~\\&!@]|https?:|www\.|^\s*(?:[-+=]|\d+[.)])|\n\s*\n|^ {4}|\t/m;

/**
 * Whether a text looks the same with and without Markdown, so that it need not be parsed. Most messages of agents do.
 */
export const isPlain = (text: string) => text.length < 2_000 && !MEANT.test(text);

const FENCE = /^ {0,3}(```|~~~)/;

/**
 * Split a text into blocks that can be parsed one by one: while text is streaming, only the last block changes. Empty
 * lines separate blocks, except inside of code.
 */
export function piecesOf(text: string): string[] {
  const pieces: string[] = [];
  let piece: string[] = [];
  let fence: string | null = null;
  for (const line of text.split("\n")) {
    const mark = FENCE.exec(line)?.[1] ?? null;
    if (mark !== null && fence === null) fence = mark;
    else if (mark !== null && mark === fence) fence = null;
    const isBetween = line.trim() === "" && fence === null;
    if (!isBetween) piece.push(line);
    else if (piece.length) {
      pieces.push(piece.join("\n"));
      piece = [];
    }
  }
  return piece.length ? [...pieces, piece.join("\n")] : pieces;
}

/** Return the address of a link that is safe to follow; undefined for all others. */
export function safeLink(address: string | undefined): string | undefined {
  return address !== undefined && /^(https?:\/\/|mailto:)/i.test(address) ? address : undefined;
}
