/** The fields of a form, from a JSON Schema. `formValues` converts what is typed into them. */

import { isRecord } from "./json";

export type FieldKind = "line" | "prose" | "number" | "integer" | "boolean" | "choice" | "array" | "object" | "any";

export interface Field {
  readonly name: string;
  readonly label: string;
  readonly description: string | null;
  readonly kind: FieldKind;
  readonly required: boolean;
  /** The initial text. A boolean is `true` or `false`; a choice is an index in `choices`. */
  readonly initial: string;
  readonly hasDefault: boolean;
  readonly choices: readonly unknown[];
  readonly min: number | null;
  readonly max: number | null;
  readonly maxLength: number | null;
}

type Schema = Readonly<Record<string, unknown>>;

const PROSE = new Set([
  "prompt",
  "task",
  "text",
  "description",
  "message",
  "question",
  "instructions",
  "body",
  "content",
  "notes",
  "context",
]);
const PROSE_FORMATS = new Set(["multiline", "textarea", "markdown", "text"]);
/** A text that may be longer than this is prose. */
const LINE_CHARS = 200;

export function fieldsOf(schema: Schema): Field[] {
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  return Object.entries(isRecord(schema.properties) ? schema.properties : {}).map(([name, property]) =>
    fieldOf(name, isRecord(property) ? property : {}, required.has(name)),
  );
}

function fieldOf(name: string, property: Schema, required: boolean): Field {
  const schema = withoutNull(property);
  const choices = Array.isArray(schema.enum) ? schema.enum : [];
  const kind = choices.length ? "choice" : kindOf(name, schema);
  const hasDefault = schema.default !== undefined && schema.default !== null;
  return {
    name,
    label: textOf(schema.title) ?? labelOf(name),
    description: textOf(schema.description),
    kind,
    required,
    initial: hasDefault ? initialText(kind, schema.default, choices) : kind === "boolean" ? "false" : "",
    hasDefault,
    choices,
    min: numberOf(schema.minimum),
    max: numberOf(schema.maximum),
    maxLength: numberOf(schema.maxLength),
  };
}

/** Turn a name into a label: `MAX_ROUNDS` and `maxRounds` become `Max rounds`. */
function labelOf(name: string): string {
  const words = (name === name.toUpperCase() ? name.toLowerCase() : spaced(name)).split(/[\s_-]+/).filter(Boolean);
  // A word in capitals among other words is an abbreviation.
  const text = words
    .map((word) => (word.length > 1 && word === word.toUpperCase() ? word : word.toLowerCase()))
    .join(" ");
  return text ? text.charAt(0).toUpperCase() + text.slice(1) : name;
}

const spaced = (name: string) => name.replace(/([a-z\d])([A-Z])/g, "$1 $2");

/** Return the non-null alternative of a schema such as `string or null`. */
function withoutNull(schema: Schema): Schema {
  for (const name of ["anyOf", "oneOf"]) {
    const options = schema[name];
    if (!Array.isArray(options)) continue;
    const alternatives = options.filter((alternative) => isRecord(alternative) && alternative.type !== "null");
    if (alternatives.length === 1 && isRecord(alternatives[0])) return { ...alternatives[0], ...schema };
  }
  if (!Array.isArray(schema.type)) return schema;
  const types = schema.type.filter((alternative) => alternative !== "null");
  return { ...schema, type: types.length === 1 ? types[0] : undefined };
}

function kindOf(name: string, schema: Schema): FieldKind {
  switch (schema.type) {
    case "string":
      return isProse(name, schema) ? "prose" : "line";
    case "number":
    case "integer":
    case "boolean":
    case "array":
    case "object":
      return schema.type;
    default:
      return "any";
  }
}

function isProse(name: string, schema: Schema): boolean {
  const words = spaced(name)
    .toLowerCase()
    .split(/[^a-z]+/);
  return (
    schema["x-multiline"] === true ||
    PROSE_FORMATS.has(textOf(schema.format) ?? "") ||
    (numberOf(schema.maxLength) ?? 0) > LINE_CHARS ||
    (textOf(schema.default) ?? "").includes("\n") ||
    words.some((word) => PROSE.has(word))
  );
}

/** Return a value as the text of its field. */
export function initialText(kind: FieldKind, value: unknown, choices: readonly unknown[]): string {
  if (kind === "choice") {
    const index = choices.findIndex((alternative) => JSON.stringify(alternative) === JSON.stringify(value));
    return index < 0 ? "" : String(index);
  }
  if (typeof value === "string") return value;
  return kind === "array" || kind === "object" ? JSON.stringify(value, null, 2) : JSON.stringify(value);
}

const textOf = (value: unknown) => (typeof value === "string" && value !== "" ? value : null);
const numberOf = (value: unknown) => (typeof value === "number" ? value : null);
