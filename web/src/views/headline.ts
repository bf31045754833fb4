/** The one-line summary of a call: its command, file or question; never its JSON. */
import { isRecord, isText, oneLine } from "./json";
import { patchedPaths } from "./patch";

/** Fields that describe a call best, in this order, for the tools of all agents. */
const DESCRIBING_FIELDS = [
  ...["command", "cmd", "script", "code"],
  ...["file_path", "filePath", "path", "notebook_path", "dir_path", "directory", "file", "filename"],
  ...[
    "pattern",
    "query",
    "q",
    "url",
    "question",
    "summary",
    "description",
    "prompt",
    "message",
    "text",
    "name",
    "title",
  ],
  ...["skill", "subject", "task", "to", "agent_id", "shellId"],
];
const TASK_LIST_FIELDS = ["todos", "items", "plan"];
const PATCH_FIELDS = ["patchText", "patch", "input", "diff"];

export function headline(input: unknown): string {
  if (isText(input)) return oneLine(patchedPaths(input).join(", ") || withoutShell(input));
  if (!isRecord(input)) return input === null || input === undefined ? "" : oneLine(JSON.stringify(input));
  return oneLine(patchesIn(input) || tasksIn(input) || filesIn(input) || descriptionIn(input) || firstValueIn(input));
}

function descriptionIn(input: Record<string, unknown>): string {
  // Workers write the names of their inputs in capitals.
  const fields = new Map(Object.entries(input).map(([name, value]) => [name.toLowerCase(), value]));
  for (const name of DESCRIBING_FIELDS) {
    const value = input[name] ?? fields.get(name.toLowerCase());
    if (isText(value) && value.trim()) return withLocation(name, withoutShell(value), input);
    // A command as a list of words.
    if (Array.isArray(value) && value.length && value.every(isText)) return withoutShell(value.join(" "));
  }
  return "";
}

/** Add the pattern of a search, or the line in a file. */
function withLocation(name: string, value: string, input: Record<string, unknown>): string {
  const pattern = input["pattern"] ?? input["glob"];
  if (["path", "dir_path", "directory"].includes(name) && isText(pattern) && pattern) return `${pattern} in ${value}`;
  const line = input["offset"] ?? input["start_line"];
  return ["file_path", "filePath", "path"].includes(name) && typeof line === "number" && line > 0
    ? `${value}:${line}`
    : value;
}

function patchesIn(input: Record<string, unknown>): string {
  for (const name of PATCH_FIELDS) {
    const value = input[name];
    const paths = isText(value) ? patchedPaths(value) : [];
    if (paths.length) return paths.join(", ");
  }
  return "";
}

function filesIn(input: Record<string, unknown>): string {
  const changes = input["changes"];
  if (!Array.isArray(changes)) return "";
  return changes.flatMap((item) => (isRecord(item) && isText(item["path"]) ? [item["path"]] : [])).join(", ");
}

function tasksIn(input: Record<string, unknown>): string {
  const tasks = TASK_LIST_FIELDS.map((name) => input[name]).find(
    (list): list is unknown[] => Array.isArray(list) && list.some(isRecord),
  );
  if (!tasks) return "";
  const done = tasks.filter((item) => isRecord(item) && (item["completed"] === true || item["status"] === "completed"));
  const current = tasks.find((item) => isRecord(item) && item["status"] === "in_progress");
  const currentText = isRecord(current)
    ? (current["activeForm"] ?? current["content"] ?? current["description"] ?? current["text"])
    : "";
  return `${done.length} of ${tasks.length} done${isText(currentText) && currentText ? `: ${currentText}` : ""}`;
}

/** Fall back to the first text, or else to the first values. */
function firstValueIn(input: Record<string, unknown>): string {
  const entries = Object.entries(input);
  const text = entries.find(([, value]) => isText(value) && value.trim());
  if (text) return `${text[0]}: ${String(text[1])}`;
  return entries
    .filter(([, value]) => typeof value !== "object" || value === null)
    .map(([name, value]) => `${name}: ${String(value)}`)
    .join(", ");
}

/** Remove the shell around a command: `/bin/bash -lc 'make test'` becomes `make test`. */
function withoutShell(command: string): string {
  const inner = /^(?:\S*\/)?(?:ba|z|da)?sh\s+-l?c\s+(['"]?)([\s\S]*)\1\s*$/.exec(command);
  return inner?.[2]?.trim() || command;
}

/** Return a path without its folders; any other text as it is. */
export const baseName = (path: string) => (/^\S*\/\S+$/.test(path) ? (path.split("/").at(-1) ?? path) : path);
