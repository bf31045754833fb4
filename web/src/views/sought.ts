/** What a search over all runs was for, as texts that can be looked for in one of them. */

const PHRASE = /"([^"]*)"/g;
const WORD = /[\p{L}\p{M}\p{N}_]+/gu;

/** The whole first, then phrases in quotes, then words, the longest first: it says most. */
export function partsOf(sought: string): string[] {
  const phrases = [...sought.matchAll(PHRASE)].map((found) => (found[1] ?? "").trim());
  // A single letter stands everywhere.
  const words = (sought.replace(PHRASE, " ").match(WORD) ?? []).filter((word) => word.length > 1);
  const parts = [sought.replaceAll('"', ""), ...phrases, ...words.toSorted((a, b) => b.length - a.length)];
  return [...new Set(parts.map((part) => part.trim()).filter((part) => part !== ""))];
}
