/** The one-line summary of a call: its command, file or question; never its JSON. */
import { isRecord, isText, oneLine } from "./json";
import { patchedPaths } from "./patch";

/** Fields that describe a call best, in this order, for the tools of all agents. */
const TELLING = [
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
const LISTS = ["todos", "items", "plan"];
const PATCHES = ["patchText", "patch", "input", "diff"];

export function headline(input: unknown): string {
  if (isText(input)) return oneLine(patchedPaths(input).join(", ") || unwrapped(input));
  if (!isRecord(input)) return input === null || input === undefined ? "" : oneLine(JSON.stringify(input));
  return oneLine(patchesIn(input) || tasksIn(input) || filesIn(input) || tellingIn(input) || firstIn(input));
}

function tellingIn(input: Record<string, unknown>): string {
  for (const name of TELLING) {
    const said = input[name];
    if (isText(said) && said.trim()) return withPlace(name, unwrapped(said), input);
    // A command as a list of words.
    if (Array.isArray(said) && said.length && said.every(isText)) return unwrapped(said.join(" "));
  }
  return "";
}

/** Add the pattern of a search, or the line in a file. */
function withPlace(name: string, said: string, input: Record<string, unknown>): string {
  const pattern = input["pattern"] ?? input["glob"];
  if (["path", "dir_path", "directory"].includes(name) && isText(pattern) && pattern) return `${pattern} in ${said}`;
  const line = input["offset"] ?? input["start_line"];
  return ["file_path", "filePath", "path"].includes(name) && typeof line === "number" && line > 0
    ? `${said}:${line}`
    : said;
}

function patchesIn(input: Record<string, unknown>): string {
  for (const name of PATCHES) {
    const said = input[name];
    const paths = isText(said) ? patchedPaths(said) : [];
    if (paths.length) return paths.join(", ");
  }
  return "";
}

function filesIn(input: Record<string, unknown>): string {
  const changes = input["changes"];
  if (!Array.isArray(changes)) return "";
  return changes.flatMap((one) => (isRecord(one) && isText(one["path"]) ? [one["path"]] : [])).join(", ");
}

function tasksIn(input: Record<string, unknown>): string {
  const tasks = LISTS.map((name) => input[name]).find(
    (list): list is unknown[] => Array.isArray(list) && list.some(isRecord),
  );
  if (!tasks) return "";
  const done = tasks.filter((one) => isRecord(one) && (one["completed"] === true || one["status"] === "completed"));
  const current = tasks.find((one) => isRecord(one) && one["status"] === "in_progress");
  const doing = isRecord(current)
    ? (current["activeForm"] ?? current["content"] ?? current["description"] ?? current["text"])
    : "";
  return `${done.length} of ${tasks.length} done${isText(doing) && doing ? `: ${doing}` : ""}`;
}

/** Fall back to the first text, or else to the first values. */
function firstIn(input: Record<string, unknown>): string {
  const entries = Object.entries(input);
  const text = entries.find(([, value]) => isText(value) && value.trim());
  if (text) return `${text[0]}: ${String(text[1])}`;
  return entries
    .filter(([, value]) => typeof value !== "object" || value === null)
    .map(([name, value]) => `${name}: ${String(value)}`)
    .join(", ");
}

/** Remove the shell around a command: `/bin/bash -lc 'make test'` becomes `make test`. */
function unwrapped(command: string): string {
  const inner = /^(?:\S*\/)?(?:ba|z|da)?sh\s+-l?c\s+(['"]?)([\s\S]*)\1\s*$/.exec(command);
  return inner?.[2]?.trim() || command;
}
