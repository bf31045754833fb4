/** Turn the query of a search over all runs into terms to search in one run. */

const PHRASE = /"([^"]*)"/g;
const WORD = /[\p{L}\p{M}\p{N}_]+/gu;

/** Return the whole query first, then quoted phrases, then words, the longest first. */
export function partsOf(sought: string): string[] {
  const phrases = [...sought.matchAll(PHRASE)].map((found) => (found[1] ?? "").trim());
  // A single letter is everywhere.
  const words = (sought.replace(PHRASE, " ").match(WORD) ?? []).filter((word) => word.length > 1);
  const parts = [sought.replaceAll('"', ""), ...phrases, ...words.toSorted((a, b) => b.length - a.length)];
  return [...new Set(parts.map((part) => part.trim()).filter((part) => part !== ""))];
}
