/** Convert the texts typed into a form to the input of a worker. */
import { isRecord } from "@/views/json";
import { type Field, initialText } from "@/views/schemaForm";

/** The typed texts by field name. */
export type TypedTexts = Readonly<Record<string, string>>;

export interface FormValues {
  readonly input: Record<string, unknown>;
  /** Error messages by field name. */
  readonly problems: Readonly<Record<string, string>>;
}

/** Convert all typed texts to the worker's input. Empty fields are left out, so that their defaults apply. */
export function readForm(fields: readonly Field[], texts: TypedTexts): FormValues {
  const input: Record<string, unknown> = {};
  const problems: Record<string, string> = {};
  for (const field of fields) {
    const parsed = parseField(field, texts[field.name] ?? field.initial);
    if ("problem" in parsed) problems[field.name] = parsed.problem;
    else if (parsed.value !== undefined) input[field.name] = parsed.value;
  }
  return { input, problems };
}

/** Return the texts of a form for an input, such as that of an earlier run. */
export const textsOf = (fields: readonly Field[], input: Readonly<Record<string, unknown>>): TypedTexts =>
  Object.fromEntries(
    fields.flatMap(({ name, kind, choices }) => {
      const value = input[name];
      return value === undefined || value === null ? [] : [[name, initialText(kind, value, choices)]];
    }),
  );

type ParsedField = { value: unknown } | { problem: string };

export function parseField(field: Field, text: string): ParsedField {
  if (field.kind === "boolean")
    return { value: text === "true" || field.required || field.hasDefault ? text === "true" : undefined };
  if (text.trim() === "") return parseEmpty(field, text);
  switch (field.kind) {
    case "line":
    case "prose":
      return { value: text };
    case "number":
    case "integer":
      return parseNumber(field, text);
    case "choice":
      return { value: field.choices[Number(text)] };
    case "array":
    case "object":
      return parseJsonField(field.kind, text);
    case "any":
      // Leave an unchanged default out: parsed from text, it could become another type.
      return field.hasDefault && text === field.initial ? { value: undefined } : parseAny(text);
  }
}

function parseEmpty(field: Field, text: string): ParsedField {
  if (field.required) return { problem: "Required." };
  // The user has emptied a field with a default: send the empty text, not the default.
  const isText = field.kind === "line" || field.kind === "prose";
  return { value: isText && field.hasDefault ? text : undefined };
}

function parseNumber({ kind, min, max }: Field, text: string): ParsedField {
  const number = Number(text);
  if (!Number.isFinite(number)) return { problem: "Must be a number." };
  if (kind === "integer" && !Number.isInteger(number)) return { problem: "Must be a whole number." };
  if (min !== null && number < min) return { problem: `Must be at least ${min}.` };
  if (max !== null && number > max) return { problem: `Must be at most ${max}.` };
  return { value: number };
}

function parseJsonField(kind: "array" | "object", text: string): ParsedField {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { problem: `Invalid JSON: ${error instanceof Error ? error.message : String(error)}` };
  }
  if (kind === "array" && !Array.isArray(value)) return { problem: 'Must be a list, e.g. ["one", "two"].' };
  if (kind === "object" && !isRecord(value)) return { problem: 'Must be an object, e.g. {"name": "value"}.' };
  return { value };
}

/** Parse a value of any type: JSON if it is valid, otherwise the text itself, as on the command line. */
function parseAny(text: string): ParsedField {
  try {
    return { value: JSON.parse(text) as unknown };
  } catch {
    return { value: text };
  }
}
