/** Which text is rendered as Markdown, and which links are followed. */

/** Longer text, or text with more lines, is shown as it is. */
const MAX_CHARS = 40_000;
const MAX_LINES = 1_200;
/** How many special characters a paragraph may have: parsing time grows with their square. */
const MAX_MARKS = 400;
const MAX_TOTAL_MARKS = 5_000;
/** How many underlines of headings there may be, for the same reason. */
const MAX_UNDERLINES = 100;
const MAX_DEPTH = 12;

const MARK = /[*_~`[\]<>|@&=\-\\!(]/g;
const UNDERLINE = /^ {0,3}(?:=+|-+)[ \t]*$/gm;
const ITEM = "(?:>|[-*+]|\\d+[.)])";
const TOO_DEEP = new RegExp(`^[ \\t]*(?:${ITEM}[ \\t]*){${MAX_DEPTH}}|^ {${MAX_DEPTH * 4}}[ \\t]*${ITEM}`, "m");

/**
 * Whether a text can be parsed as Markdown quickly. Some texts take minutes, or more memory than there is: an agent that
 * writes such a text could freeze the page of its readers.
 */
export function isFastToParse(text: string): boolean {
  if (text.length > MAX_CHARS || TOO_DEEP.test(text)) return false;
  if (countOf(text, /\n/g) > MAX_LINES || countOf(text, UNDERLINE) > MAX_UNDERLINES) return false;
  if (countOf(text, MARK) > MAX_TOTAL_MARKS) return false;
  return text.split(/\n[ \t]*\n/).every((paragraph) => countOf(paragraph, MARK) <= MAX_MARKS);
}

const countOf = (text: string, pattern: RegExp) => text.match(pattern)?.length ?? 0;

const MARKUP = /[*_`[\]<>#|~\\&!@]|https?:|www\.|^\s*(?:[-+=]|\d+[.)])|\n\s*\n|^ {4}|\t/m;

/**
 * Whether a text looks the same with and without Markdown, so that it need not be parsed. Most messages of agents do.
 */
export const isPlain = (text: string) => text.length < 2_000 && !MARKUP.test(text);

const FENCE = /^ {0,3}(```|~~~)/;

/**
 * Split a text into blocks that can be parsed one by one: while text is streaming, only the last block changes. Empty
 * lines separate blocks, except inside of code.
 */
export function splitBlocks(text: string): string[] {
  const blocks: string[] = [];
  let block: string[] = [];
  let fence: string | null = null;
  for (const line of text.split("\n")) {
    const mark = FENCE.exec(line)?.[1] ?? null;
    if (mark !== null && fence === null) fence = mark;
    else if (mark !== null && mark === fence) fence = null;
    const isSeparator = line.trim() === "" && fence === null;
    if (!isSeparator) block.push(line);
    else if (block.length) {
      blocks.push(block.join("\n"));
      block = [];
    }
  }
  return block.length ? [...blocks, block.join("\n")] : blocks;
}

/** Return the address of a link that is safe to follow; undefined for all others. */
export function safeLink(address: string | undefined): string | undefined {
  return address !== undefined && /^(https?:\/\/|mailto:)/i.test(address) ? address : undefined;
}

/** Text in bold. Not `**` in paths and patterns, such as `src/**` or `2**8`. */
const BOLD = /(?<![^\s("'])\*\*(?=[^\s*])([^\n]*?[^\s*])\*\*(?![\w/*])/g;

/** Remove the marks of bold text, where nothing else of Markdown is rendered. */
export const withoutBold = (text: string) => text.replace(BOLD, "$1");

/** Remove the marks of Markdown that would stand in the way on one line. Names such as `__init__` stay. */
export const withoutMarks = (text: string) =>
  withoutBold(text.replace(/^ {0,3}(?:```|~~~).*$|^[ \t]*\|?[ \t]*:?-{3,}[-:| \t]*$|^#+\s/gm, "")).replaceAll("`", "");
