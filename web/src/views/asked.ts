/** What a run asks somebody, and what an answer is. */
import type { Awaited } from "@/api";
import { asText, isRecord, isText } from "./json";

/** The waits that end when somebody answers. All others end by themselves, or by what is done elsewhere. */
const ANSWERABLE: ReadonlySet<string> = new Set(["client_tool", "question", "approval"]);
export const isAnswerable = (kind: string) => ANSWERABLE.has(kind);

/** The question, in words; null where it is not one: then it is a tool's input. */
export function questionOf({ kind, input }: Pick<Awaited, "kind" | "input">): string | null {
  if (isText(input)) return input;
  return kind === "client_tool" ? null : textIn(input, ["question", "prompt", "message", "title"]);
}

/** The first of these fields that has words in it. */
function textIn(input: unknown, names: readonly string[]): string | null {
  const said = isRecord(input)
    ? names.map((name) => input[name]).find((one) => isText(one) && one.trim() !== "")
    : null;
  return isText(said) ? said : null;
}

const REASONS: Record<string, string> = { rate_limit: "Waits for the provider’s limit." };

/** Why a run waits, of whatever kind the wait is: in its own words, else by its kind; and what else it says of itself. */
export function reasonOf({ kind, name, input }: Pick<Awaited, "kind" | "name" | "input">): {
  reason: string;
  details: string | null;
} {
  const said = isText(input) ? input : textIn(input, ["message", "reason", "text", "question", "prompt", "title"]);
  const reason = said ?? REASONS[kind] ?? `Waits: ${(kind || name).replaceAll("_", " ")}.`;
  // When the wait ends is told beside it.
  const rest = isRecord(input)
    ? Object.entries(input).filter(([field, value]) => field !== "until" && value !== said)
    : [];
  return {
    reason,
    details: rest.length ? rest.map(([field, value]) => `${field}: ${asText(value)}`).join("\n") : null,
  };
}

type Option = string | number | boolean;
const isOption = (value: unknown): value is Option => ["string", "number", "boolean"].includes(typeof value);

/** What one can choose from. */
export function optionsOf(input: unknown): readonly Option[] {
  const said = isRecord(input) ? input["options"] : null;
  return Array.isArray(said) ? said.filter(isOption) : [];
}

/** Whether it looks as if JSON was meant, and is none. */
export function isBrokenJson(typed: string, kind: string): boolean {
  return kind !== "question" && /^[{["]/.test(typed.trim()) && answerOf(typed, kind) === typed.trim();
}

/** A question is answered in words; a tool's result is JSON where it is JSON. */
export function answerOf(typed: string, kind: string): unknown {
  if (kind === "question") return typed.trim();
  try {
    return JSON.parse(typed);
  } catch {
    return typed.trim();
  }
}
