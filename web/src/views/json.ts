/** Values of which nothing is known beforehand: what tools are given and give. */

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export const isText = (value: unknown): value is string => typeof value === "string";

/** A value as somebody reads it: text as it is, anything else as JSON. */
export function asText(value: unknown): string {
  if (isText(value)) return value;
  return value === undefined ? "" : JSON.stringify(value, null, 2);
}

/** The value that a text is the JSON of, where it is that of a list or an object. */
export function parsed(text: string): unknown {
  const [first, last] = [text.trimStart().charAt(0), text.trimEnd().at(-1)];
  if (!((first === "{" && last === "}") || (first === "[" && last === "]"))) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** On one line, at most so many characters. */
export function oneLine(text: string, most = 300): string {
  // Only so much is looked at: a text may be megabytes, and its first line is at its beginning.
  const line = text
    .slice(0, most * 4)
    .replace(/\s+/g, " ")
    .trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}
