/** What a run asks somebody, and what an answer is. */
import type { Awaited } from "@/api";
import { isRecord, isText } from "./json";

/** The question, in words; null where it is not one: then it is a tool's input. */
export function questionOf({ kind, input }: Pick<Awaited, "kind" | "input">): string | null {
  if (isText(input)) return input;
  if (!isRecord(input) || kind === "client_tool") return null;
  const said = [input["question"], input["prompt"], input["message"], input["title"]].find((one) => isText(one) && one.trim() !== "");
  return isText(said) ? said : null;
}

/** Why a run waits for its definition: nobody can answer that. */
export function heldBy(input: unknown): string {
  const said = isRecord(input) ? input["message"] : null;
  return isText(said) ? said : "its worker changed";
}

/** What one can choose from. */
export function optionsOf(input: unknown): readonly (string | number | boolean)[] {
  const said = isRecord(input) ? input["options"] : null;
  return Array.isArray(said) ? said.filter((one) => ["string", "number", "boolean"].includes(typeof one)) : [];
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
