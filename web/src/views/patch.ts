/** Patches in the form that models write: `*** Begin Patch`, `*** Update File: …`, lines with `+`, `-` and a space. */
import type { DiffLine, FileDiff } from "./diff";

const FILE = /^\*\*\* (Add|Update|Delete) File: (.+)$/;
const MARK = "*** Begin Patch";

export const isPatch = (text: string) => text.trimStart().startsWith(MARK);

/** Return the files of a patch; none if the text is no patch. */
export function patchedPaths(text: string): string[] {
  if (!isPatch(text)) return [];
  return text.split("\n").flatMap((line) => FILE.exec(line)?.[2]?.trim() ?? []);
}

export function parsePatch(text: string): FileDiff[] {
  const files: { path: string; action: FileDiff["action"]; lines: DiffLine[] }[] = [];
  for (const line of text.split("\n")) {
    const file = FILE.exec(line);
    if (file) {
      const action = file[1] === "Add" ? "create" : file[1] === "Delete" ? "delete" : "modify";
      files.push({ path: (file[2] ?? "").trim(), action, lines: [] });
      continue;
    }
    const diffLine = lineOf(line);
    if (diffLine) files.at(-1)?.lines.push(diffLine);
  }
  return files;
}

function lineOf(line: string): DiffLine | null {
  if (line.startsWith("*** Move to: ")) return { kind: "hunk", text: line.slice(4) };
  if (line.startsWith("*** ")) return null;
  if (line.startsWith("@@")) return { kind: "hunk", text: line };
  if (line.startsWith("+")) return { kind: "added", text: line.slice(1) };
  if (line.startsWith("-")) return { kind: "removed", text: line.slice(1) };
  return line === "" ? null : { kind: "same", text: line.slice(1) };
}
