/** Calls that a run waits for: the question, the options, and the answer. */
import type { PendingCall } from "@/api";
import { asText, isRecord, isText } from "./json";

/** Kinds of waits that a user ends by answering. The others end by themselves or by an event elsewhere. */
const ANSWERABLE: ReadonlySet<string> = new Set(["client_tool", "question", "approval"]);
export const isAnswerable = (kind: string) => ANSWERABLE.has(kind);

/** Return the text of a question; null if the call has none, as a tool with its input. */
export function questionOf({ kind, input }: Pick<PendingCall, "kind" | "input">): string | null {
  if (isText(input)) return input;
  if (kind === "approval" && isRecord(input) && "tool" in input) return approvalOf(input).question;
  return kind === "client_tool" ? null : textIn(input, ["question", "prompt", "message", "title"]);
}

const DETAILS = ["command", "file_path", "notebook_path", "path", "url", "query"] as const;
/** Fields of a call that are shown elsewhere, or that do not change what the call does. */
const OMITTED: readonly string[] = ["variables", "old_string", "new_string", "description", "cwd"];

/**
 * Return what a person is asked to approve: a question, the command, path or input, its other fields and the values in
 * the command, and the difference of an edit.
 */
export function approvalOf(input: unknown): {
  question: string;
  detail: string;
  others: string | null;
  diff: string | null;
} {
  const fields = isRecord(input) ? input : {};
  const call = isRecord(fields["input"]) ? fields["input"] : {};
  const detail = textIn(call, DETAILS);
  const values = isRecord(call["variables"]) ? call["variables"] : {};
  const rest = Object.entries(call).filter(([name, value]) => !OMITTED.includes(name) && value !== detail);
  const others = detail === null ? [] : [...Object.entries(values), ...rest];
  const diff = fields["diff"];
  return {
    question: `Allow ${asText(fields["tool"])}?`,
    detail: detail ?? asText(fields["input"]),
    others: others.length ? others.map(([name, value]) => `${name}: ${asText(value)}`).join("\n") : null,
    diff: isText(diff) && diff !== "" ? diff : null,
  };
}

/** Return the first of these fields that has text. */
function textIn(input: unknown, names: readonly string[]): string | null {
  const text = isRecord(input)
    ? names.map((name) => input[name]).find((candidate) => isText(candidate) && candidate.trim() !== "")
    : null;
  return isText(text) ? text : null;
}

const REASONS: Record<string, string> = { rate_limit: "Waiting for the provider’s rate limit." };

/** Return why a run waits: the message of the call, or a text by its kind; and its other fields as details. */
export function reasonOf({ kind, name, input }: Pick<PendingCall, "kind" | "name" | "input">): {
  reason: string;
  details: string | null;
} {
  const text = isText(input) ? input : textIn(input, ["message", "reason", "text", "question", "prompt", "title"]);
  const reason = text ?? REASONS[kind] ?? `Waiting: ${(kind || name).replaceAll("_", " ")}.`;
  // The end of the wait is shown beside the reason.
  const rest = isRecord(input)
    ? Object.entries(input).filter(([field, value]) => field !== "until" && value !== text)
    : [];
  return {
    reason,
    details: rest.length ? rest.map(([field, value]) => `${field}: ${asText(value)}`).join("\n") : null,
  };
}

type Option = string | number | boolean;
const isOption = (value: unknown): value is Option => ["string", "number", "boolean"].includes(typeof value);

/** Return the offered answers. */
export function optionsOf(input: unknown): readonly Option[] {
  const text = isRecord(input) ? input["options"] : null;
  return Array.isArray(text) ? text.filter(isOption) : [];
}

const APPROVAL_LABELS: Record<string, string> = {
  approve: "Approve once",
  "approve for this run": "For this run",
  "always approve": "Always",
  deny: "Deny",
};

/** Return the text of the button for an offered answer. */
export const optionLabel = (kind: string, option: string) =>
  kind === "approval" ? (APPROVAL_LABELS[option] ?? option) : option;

/** Whether an answer of this kind is text, never JSON. */
const isTextKind = (kind: string) => kind === "question" || kind === "approval";

/** Whether the text looks like JSON but cannot be parsed. */
export function isBrokenJson(typed: string, kind: string): boolean {
  return !isTextKind(kind) && /^[{["]/.test(typed.trim()) && answerOf(typed, kind) === typed.trim();
}

/**
 * Return the value of a typed answer: a question is answered with text, a tool with JSON if the text is valid JSON.
 */
export function answerOf(typed: string, kind: string): unknown {
  if (isTextKind(kind)) return typed.trim();
  try {
    return JSON.parse(typed);
  } catch {
    return typed.trim();
  }
}
