/** File changes as lines: from unified diffs, from patches, and from the strings of an edit. */
import type { FileChange } from "@/api";
import { isRecord, isText } from "./json";
import { isPatch, parsePatch } from "./patch";

export interface DiffLine {
  readonly kind: "same" | "added" | "removed" | "hunk";
  readonly text: string;
}

export interface FileDiff {
  readonly path: string;
  readonly action: FileChange["action"];
  readonly lines: readonly DiffLine[];
}

/** Header lines, which repeat the path. */
const HEADER =
  /^(diff --git |index |Index: |=+$|--- |\+\+\+ |new file mode |deleted file mode |create file mode |old mode |new mode |similarity index |rename (from|to) |\\ No newline)/;

/** Parse a unified diff of one file. */
export function parseUnifiedDiff(diff: string): DiffLine[] {
  const lines: DiffLine[] = [];
  let inHunk = false;
  for (const line of diff.replace(/\n$/, "").split("\n")) {
    if (line.startsWith("@@")) {
      inHunk = true;
      lines.push({ kind: "hunk", text: line });
    } else if (!inHunk && HEADER.test(line)) continue;
    else if (/^(diff --git |Index: )/.test(line)) inHunk = false;
    else if (line.startsWith("\\ No newline")) continue;
    else if (line.startsWith("+")) lines.push({ kind: "added", text: line.slice(1) });
    else if (line.startsWith("-")) lines.push({ kind: "removed", text: line.slice(1) });
    else lines.push({ kind: "same", text: line.startsWith(" ") ? line.slice(1) : line });
  }
  return lines;
}

/** Return what a call changed: from its result, or else from its input. */
export function changesOf(input: unknown, files: readonly FileChange[] | null | undefined): FileDiff[] {
  const reported = (files ?? []).flatMap((file) =>
    file.diff ? [{ path: file.path, action: file.action, lines: parseUnifiedDiff(file.diff) }] : [],
  );
  return reported.length ? reported : changesInInput(input);
}

function changesInInput(input: unknown): FileDiff[] {
  if (isText(input)) return isPatch(input) ? parsePatch(input) : [];
  if (!isRecord(input)) return [];
  for (const name of ["patchText", "patch", "input"]) {
    const patch = input[name];
    if (isText(patch) && isPatch(patch)) return parsePatch(patch);
  }
  const path = textIn(input, "file_path", "filePath", "path", "notebook_path");
  if (path === undefined) return [];
  const content = textIn(input, "content", "file_text", "contents");
  const edits = Array.isArray(input["edits"]) ? input["edits"].filter(isRecord) : [input];
  const lines = edits.flatMap((edit, n) => {
    const [before, after] = [
      textIn(edit, "old_string", "oldString", "old_str"),
      textIn(edit, "new_string", "newString", "new_str"),
    ];
    if (before === undefined || after === undefined) return [];
    const gap: DiffLine[] = n > 0 ? [{ kind: "hunk", text: "…" }] : [];
    return [...gap, ...diffLines(before, after)];
  });
  if (lines.length) return [{ path, action: "modify", lines }];
  return content === undefined ? [] : [{ path, action: "create", lines: diffLines("", content) }];
}

function textIn(input: Record<string, unknown>, ...names: string[]): string | undefined {
  return names.map((name) => input[name]).find(isText);
}

/** With more pairs of lines than this, texts are not compared: all old lines, then all new ones. */
const MAX_PAIRS = 1_000_000;

/** Compute the diff between two texts. */
export function diffLines(before: string, after: string): DiffLine[] {
  const [old, current] = [linesOf(before), linesOf(after)];
  let start = 0;
  while (start < old.length && start < current.length && old[start] === current[start]) start++;
  let end = 0;
  while (end < old.length - start && end < current.length - start && old.at(-1 - end) === current.at(-1 - end)) end++;
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ kind: "same", text }));
  return [
    ...same(old.slice(0, start)),
    ...diffMiddle(old.slice(start, old.length - end), current.slice(start, current.length - end)),
    ...same(end ? old.slice(-end) : []),
  ];
}

function linesOf(text: string): string[] {
  if (text === "") return [];
  return text.replace(/\n$/, "").split("\n");
}

function diffMiddle(old: readonly string[], current: readonly string[]): DiffLine[] {
  const removed = (text: string): DiffLine => ({ kind: "removed", text });
  const added = (text: string): DiffLine => ({ kind: "added", text });
  if (old.length * current.length > MAX_PAIRS) return [...old.map(removed), ...current.map(added)];
  // Length of the longest common subsequence from each pair of lines on.
  const width = current.length + 1;
  const common = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = current.length - 1; j >= 0; j--) {
      const below = common[(i + 1) * width + j] ?? 0;
      const right = common[i * width + j + 1] ?? 0;
      common[i * width + j] =
        old[i] === current[j] ? (common[(i + 1) * width + j + 1] ?? 0) + 1 : Math.max(below, right);
    }
  }
  const lines: DiffLine[] = [];
  let [i, j] = [0, 0];
  while (i < old.length || j < current.length) {
    if (i < old.length && j < current.length && old[i] === current[j]) {
      lines.push({ kind: "same", text: old[i] ?? "" });
      i++;
      j++;
    } else if (
      i < old.length &&
      (j === current.length || (common[(i + 1) * width + j] ?? 0) >= (common[i * width + j + 1] ?? 0))
    ) {
      lines.push(removed(old[i++] ?? ""));
    } else lines.push(added(current[j++] ?? ""));
  }
  return lines;
}

export const countOf = (lines: readonly DiffLine[], kind: DiffLine["kind"]) =>
  lines.filter((line) => line.kind === kind).length;

const HUNK = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;

/** Add the number of each line in its file: of removed lines in the old file, of all others in the new one. */
export function numbered(lines: readonly DiffLine[]): (DiffLine & { readonly number: number | null })[] {
  let old: number | null = null;
  let current: number | null = null;
  return lines.map((line) => {
    if (line.kind === "hunk") {
      const [, oldStart, newStart] = HUNK.exec(line.text) ?? [];
      old = oldStart === undefined ? null : Number(oldStart);
      current = newStart === undefined ? null : Number(newStart);
      return { ...line, number: null };
    }
    const number: number | null = line.kind === "removed" ? old : current;
    if (line.kind !== "added" && old !== null) old++;
    if (line.kind !== "removed" && current !== null) current++;
    return { ...line, number };
  });
}
