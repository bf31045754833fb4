/** Turn the query of a search over all runs into terms to search in one run. */

const PHRASE = /"([^"]*)"/g;
const WORD = /[\p{L}\p{M}\p{N}_]+/gu;

/** Return the whole query first, then quoted phrases, then words, the longest first. */
export function searchTermsOf(query: string): string[] {
  const phrases = [...query.matchAll(PHRASE)].map((match) => (match[1] ?? "").trim());
  // A single letter is everywhere.
  const words = (query.replace(PHRASE, " ").match(WORD) ?? []).filter((word) => word.length > 1);
  const terms = [query.replaceAll('"', ""), ...phrases, ...words.toSorted((a, b) => b.length - a.length)];
  return [...new Set(terms.map((term) => term.trim()).filter((term) => term !== ""))];
}
