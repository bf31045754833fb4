/** The rows of the list of runs: a flat list, or a tree with sub-runs below their run. */
import type { Run, RunList } from "@/api";
import { waitText } from "./detail";
import { activityText } from "./activity";
import { oneLine } from "./json";

export type Row = RunRow | BranchStateRow;

export interface RunRow {
  readonly kind: "run";
  readonly key: string;
  readonly run: Run;
  readonly depth: number;
  /** Whether its sub-runs are shown below it. */
  readonly isExpanded: boolean;
}

/** The state of a branch whose sub-runs are not all shown: loading, more to load, or failed. */
export interface BranchStateRow {
  readonly kind: "loading" | "more" | "error";
  readonly key: string;
  readonly parent: string;
  readonly depth: number;
}

/** The known sub-runs of a run. */
export interface Branch {
  readonly runs: readonly Run[];
  readonly state: "loading" | "more" | "error" | "complete";
}

/** Cards are not indented further than this, so that they stay readable. */
export const MAX_INDENT = 8;
/** Heights of the rows. Fingers need more room than a pointer. */
export const ROW_HEIGHTS = {
  fine: { card: 48, subRun: 32 },
  coarse: { card: 56, subRun: 44 },
};
export type RowHeights = (typeof ROW_HEIGHTS)["fine"];
/** Two more lines for the search hit. */
const HIT_PX = 34;

/** Return the runs of all pages, each once: a run that has moved meanwhile can be on two pages. */
export function runsOf(pages: readonly RunList[]): Run[] {
  const seen = new Set<string>();
  const runs: Run[] = [];
  for (const page of pages) {
    for (const run of page.workers) {
      if (seen.has(run.id)) continue;
      seen.add(run.id);
      runs.push(run);
    }
  }
  return runs;
}

export function rowsOf(
  runs: readonly Run[],
  isExpanded: ReadonlySet<string>,
  branches: ReadonlyMap<string, Branch>,
): Row[] {
  const rows: Row[] = [];
  // Without recursion: a tree can have any depth.
  const levels: { runs: readonly Run[]; next: number; depth: number }[] = [{ runs, next: 0, depth: 0 }];
  for (let level = levels.at(-1); level; level = levels.at(-1)) {
    const run = level.runs[level.next++];
    if (!run) {
      levels.pop();
      continue;
    }
    const isOpen = isExpanded.has(run.id) && run.children > 0;
    rows.push({ kind: "run", key: run.id, run, depth: level.depth, isExpanded: isOpen });
    if (!isOpen) continue;
    const branch = branches.get(run.id) ?? { runs: [], state: "loading" };
    const depth = level.depth + 1;
    const state = branchStateRow(branch, run.id, depth);
    if (state) rows.push(state);
    // Sub-runs are in the order in which they started; the list, and what is loaded of a branch, has the newest first.
    levels.push({ runs: branch.runs.toReversed(), next: 0, depth });
  }
  return rows;
}

function branchStateRow({ state }: Branch, parent: string, depth: number): BranchStateRow | null {
  return state === "complete" ? null : { kind: state, key: `${parent} ${state}`, parent, depth };
}

export function heightOf(row: Row | undefined, { card, subRun }: RowHeights = ROW_HEIGHTS.fine): number {
  if (row?.kind !== "run" || row.depth > 0) return subRun;
  return taskHits(row.run).snippetRest === null ? card : card + HIT_PX;
}

/** The second line of a card: why to look at the run. */
export interface CardNote {
  readonly text: string;
  readonly tone: "failed" | "waiting" | null;
}

/**
 * Return what the run asks, why it has not started, why it failed, or what it does now; otherwise what executes it.
 * Where it came from is last.
 */
export function cardNote(run: Run, owner: string | null): CardNote {
  const tone = run.status === "failed" || run.status === "waiting" ? run.status : null;
  const reason = reasonOf(run);
  const channel = run.channel_id === null ? null : (run.channel_name ?? run.channel_id);
  const executor = reason ?? [run.name === run.task ? null : run.name, run.model].filter(Boolean).join(" · ");
  const parts = [executor, channel, owner === run.name ? null : owner];
  return { text: parts.filter(Boolean).join(" · "), tone: reason === null ? null : tone };
}

function reasonOf(run: Run): string | null {
  switch (run.status) {
    case "waiting":
      return run.asks?.length ? run.asks.map((ask) => oneLine(ask)).join(" · ") : waitText(run.waits_for);
    case "queued":
      return run.queue_reason;
    case "failed":
      return oneLine(run.error?.message ?? run.error?.code ?? "") || null;
    case "cancelled":
      return run.error?.message ? oneLine(run.error.message) : null;
    case "running":
      return run.interrupted ? run.queue_reason : activityText(run);
    default:
      return null;
  }
}

/** Whether the card shows how long the run has taken, and not how long ago it started. */
export const showsElapsed = (run: Run) => run.status === "running" && !run.interrupted;

/** Return the next run in a direction; null at the ends. */
export function nextRun(rows: readonly Row[], from: number, step: 1 | -1): RunRow | null {
  for (let index = from + step; index >= 0 && index < rows.length; index += step) {
    const row = rows[index];
    if (row?.kind === "run") return row;
  }
  return null;
}

/** Return the index of a run; -1 if it is not in the list. */
export const indexOf = (rows: readonly Row[], key: string | undefined): number =>
  key === undefined ? -1 : rows.findIndex((row) => row.key === key);

/**
 * Return the last visible run on a path before the first hidden one; undefined if all are visible, or not even the
 * first is.
 */
export function lastVisible(rows: readonly Row[], path: readonly string[]): string | undefined {
  const hidden = path.findIndex((runId) => indexOf(rows, runId) < 0);
  return path[hidden - 1];
}

/** Every card shows at least this much of a task. */
const VISIBLE_CHARS = 80;
const HIT_MARKS = /[\uE000\uE001]/g;

/**
 * A task with its search hits marked, and the part of the snippet that is not in the task; null if there is none.
 */
export interface TaskHits {
  readonly task: string;
  readonly snippetRest: string | null;
}

/**
 * Leave out a snippet that repeats the task on the card: the searched text starts with the task, on lines of its own.
 */
export function taskHits({ task, snippet }: Pick<Run, "task" | "snippet">): TaskHits {
  if (snippet === null) return { task, snippetRest: null };
  const text = snippet.replace(/^…/, "");
  for (const [head, rest] of [[text.replace(/…$/, "").trimEnd(), ""] as const, ...splitsAtLines(text)]) {
    const plain = head.replace(HIT_MARKS, "");
    const start = rest === "" ? task.indexOf(plain) : task.endsWith(plain) ? task.length - plain.length : -1;
    if (start < 0) continue;
    const hit = head.indexOf("\uE000");
    if (hit >= 0 && start + hit >= VISIBLE_CHARS) break;
    const marked = task.slice(0, start) + head + task.slice(start + plain.length);
    return { task: marked, snippetRest: rest.includes("\uE000") ? rest : null };
  }
  return { task, snippetRest: snippet };
}

/** Split a text in two at each of its line breaks, the last one first. */
function splitsAtLines(text: string): (readonly [string, string])[] {
  const lines = text.split("\n");
  return lines
    .slice(1)
    .map((_, n) => [lines.slice(0, n + 1).join("\n"), lines.slice(n + 1).join("\n")] as const)
    .reverse();
}

export interface Piece {
  readonly text: string;
  readonly isHit: boolean;
}

/** Split a snippet into pieces: text between U+E000 and U+E001 is a search hit. */
export function snippetPieces(snippet: string): Piece[] {
  const found: Piece[] = [];
  let from = 0;
  for (const hit of snippet.matchAll(/\uE000([^\uE000\uE001]*)\uE001/g)) {
    if (hit.index > from) found.push({ text: snippet.slice(from, hit.index), isHit: false });
    found.push({ text: hit[1] ?? "", isHit: true });
    from = hit.index + hit[0].length;
  }
  if (from < snippet.length) found.push({ text: snippet.slice(from), isHit: false });
  return found;
}
