/** Helpers for values of unknown type, such as inputs and outputs of tools. */

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export const isText = (value: unknown): value is string => typeof value === "string";

/** Format a value for reading: text as it is, anything else as JSON. */
export function asText(value: unknown): string {
  if (isText(value)) return value;
  return value === undefined ? "" : JSON.stringify(value, null, 2);
}

/** Parse a text that is the JSON of a list or an object; undefined for any other text. */
export function parseJson(text: string): unknown {
  const [first, last] = [text.trimStart().charAt(0), text.trimEnd().at(-1)];
  if (!((first === "{" && last === "}") || (first === "[" && last === "]"))) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Return a text on one line, with at most `maxChars` characters. */
export function oneLine(text: string, maxChars = 300): string {
  // Look only at the beginning: a text may have megabytes.
  const line = text
    .slice(0, maxChars * 4)
    .replace(/\s+/g, " ")
    .trim();
  return line.length > maxChars ? `${line.slice(0, maxChars - 1)}…` : line;
}
