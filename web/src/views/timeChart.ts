/**
 * The chart of where the time of a run went: a bar for each step, tool call and sub-run, in lanes; inner spans are
 * below their step.
 */
import type { Span, Spans } from "@/api";
import { axisOf, type Break, type Interval, uncovered } from "./timeAxis";

export interface Bar {
  /** The span; the first of several. */
  readonly span: Span;
  /** How many spans the bar stands for. */
  readonly count: number;
  /** Empty if the spans have different names. */
  readonly name: string;
  /** From 0, the topmost. */
  readonly lane: number;
  /** Position in the chart, in 0..1. */
  readonly from: number;
  readonly to: number;
  /** The duration; of several spans, the sum of their durations. */
  readonly ms: number;
  /** Whether the span has not ended. */
  readonly isOpen: boolean;
}

export interface Chart {
  readonly bars: readonly Bar[];
  readonly breaks: readonly Break[];
  readonly lanes: number;
  readonly ms: number;
  /** Return the position of a moment in the chart, in 0..1. */
  readonly at: (ms: number) => number;
}

/** Agents do not report which of their own tools wait for a user; this tool only waits. */
const WAITING_TOOLS: ReadonlySet<string> = new Set(["AskUserQuestion"]);

/** Whether the span only waits, for a user or for a time. */
export const isWait = (span: Span) => span.waits === true || WAITING_TOOLS.has(span.name);

/** How a span ended that did not succeed. */
export type Ending = "failed" | "cancelled";

/** Return how a span ended. `cancelledBy` are the events by which spans ended because the run was cancelled. */
export const endingOf = ({ error, end_seq }: Span, cancelledBy: ReadonlySet<number>): Ending | null =>
  !error ? null : end_seq !== null && cancelledBy.has(end_seq) ? "cancelled" : "failed";

interface Node {
  readonly span: Span;
  readonly from: number;
  /** Infinity until the span has ended. */
  readonly to: number;
  readonly children: Node[];
  lane: number;
}

/** Spans with their lanes. They do not depend on the current time: an open span keeps its lane to the end. */
export interface Lanes {
  readonly nodes: readonly Node[];
  readonly count: number;
  readonly from: number;
  readonly to: number | null;
}

export function lanesOf(spans: Spans): Lanes {
  const nodes: Node[] = spans.spans.map((span) => {
    const from = Date.parse(span.started_at);
    // Clocks are set back now and then; a span never ends before it started.
    const to = span.ended_at === null ? Infinity : Math.max(from, Date.parse(span.ended_at));
    return { span, from, to, children: [], lane: 0 };
  });
  const count = assignLanes(nestByPath(nodes));
  const startedAt = spans.started_at === null ? Infinity : Date.parse(spans.started_at);
  const from = nodes.reduce((min, node) => Math.min(min, node.from), startedAt);
  return {
    nodes,
    count,
    from: Number.isFinite(from) ? from : 0,
    to: spans.ended_at === null ? null : Date.parse(spans.ended_at),
  };
}

/**
 * Build the chart at a time. `now` is null if the run has ended: then the last known time is the end. `isWaiting`
 * tells whether the run is waiting now.
 */
export function chartOf(lanes: Lanes, now: number | null, isWaiting: boolean): Chart {
  const { nodes, from } = lanes;
  const last = nodes.reduce((max, node) => Math.max(max, node.from, Number.isFinite(node.to) ? node.to : 0), from);
  const total: Interval = [from, Math.max(last, lanes.to ?? now ?? last)];
  const end = (node: Node) => Math.min(node.to, total[1]);
  const busy = nodes.flatMap((node) => busyIntervals(node, end(node)));
  const idle = uncovered(total, isWaiting ? busy.map(([a, b]): Interval => [a, b >= total[1] ? last : b]) : busy);
  const axis = axisOf(
    total,
    nodes.flatMap((node) => [node.from, end(node)]),
    idle,
  );
  const bars = nodes.map((node): Bar => {
    const isOpen = node.to === Infinity;
    const ms = node.span.duration_ms ?? end(node) - node.from;
    const { name, count = 1 } = node.span;
    return {
      span: node.span,
      count,
      name,
      lane: node.lane,
      from: axis.at(node.from),
      to: axis.at(end(node)),
      ms,
      isOpen,
    };
  });
  return { bars: mergeNarrowBars(bars), breaks: axis.breaks, lanes: lanes.count, ms: axis.ms, at: axis.at };
}

/** Bars below this share of the chart's width can neither be told apart nor clicked. */
const MIN_BAR_WIDTH = 1 / 160;

/** Merge neighbors in a lane that are too narrow to be drawn side by side; no span is left out. */
export function mergeNarrowBars(bars: readonly Bar[]): Bar[] {
  const merged: Bar[] = [];
  const last = new Map<string, number>();
  for (const bar of bars.toSorted((a, b) => a.from - b.from)) {
    const mergeKey = `${bar.lane} ${bar.span.kind} ${isWait(bar.span)} ${bar.span.error} ${bar.isOpen}`;
    const index = last.get(mergeKey);
    const before = index === undefined ? undefined : merged[index];
    if (index === undefined || !before || bar.to - before.from >= MIN_BAR_WIDTH)
      last.set(mergeKey, merged.push(bar) - 1);
    else
      merged[index] = {
        ...before,
        count: before.count + bar.count,
        name: before.name === bar.name ? bar.name : "",
        to: Math.max(before.to, bar.to),
        ms: before.ms + bar.ms,
      };
  }
  const order = new Map(bars.map((bar, position) => [bar.span, position]));
  return merged.sort((a, b) => (order.get(a.span) ?? 0) - (order.get(b.span) ?? 0));
}

const PLURALS: Record<Span["kind"], string> = { step: "steps", tool: "tool calls", run: "sub-runs" };

/** Return the label of a bar: `Bash`; for several spans `12 × Bash`, or `12 tool calls` if the names differ. */
export function barName({ count, name, span }: Pick<Bar, "count" | "name" | "span">): string {
  if (count === 1) return name;
  return name ? `${count.toLocaleString("en")} × ${name}` : `${count.toLocaleString("en")} ${PLURALS[span.kind]}`;
}

/** Return when a span itself was busy, and not only waiting for inner spans or for a user. */
function busyIntervals(node: Node, end: number): Interval[] {
  const { span, from, children } = node;
  if (span.kind !== "step") return isWait(span) ? [] : [[from, end]];
  if (children.length === 0) return [[from, end]];
  const tools = children.filter((child) => child.span.kind === "tool");
  // A step of steps does nothing itself; a step that calls tools is thinking between the calls.
  if (tools.length === 0) return [];
  const isWaiting = tools.filter((child) => isWait(child.span));
  return uncovered(
    [from, end],
    isWaiting.map((child): Interval => [child.from, Math.min(child.to, end)]),
  );
}

/** Nest each span below the step it belongs to, by their paths, and return the roots. */
function nestByPath(nodes: readonly Node[]): Node[] {
  const roots: Node[] = [];
  const newest = new Map<string, Node>();
  for (const node of nodes) {
    const { kind, path } = node.span;
    const parent = stepAt(newest, kind === "tool" ? path : parentPath(path), node.from);
    (parent?.children ?? roots).push(node);
    if (kind !== "tool") newest.set(path, node);
  }
  return roots;
}

/** Return the innermost step at this path or around it that has not ended at this time. */
function stepAt(newest: ReadonlyMap<string, Node>, path: string, at: number): Node | undefined {
  for (let stepPath = path; stepPath; stepPath = parentPath(stepPath)) {
    const node = newest.get(stepPath);
    if (node && node.to >= at) return node;
  }
  return undefined;
}

const parentPath = (path: string) => path.slice(0, Math.max(0, path.lastIndexOf(".")));

/**
 * Assign the lanes: each span is below the span that contains it, takes its inner spans along as a block, and goes as
 * far up as there is room. Return the number of lanes.
 */
function assignLanes(nodes: readonly Node[]): number {
  /** When each lane is free again. */
  const freeAt: number[] = [];
  for (const node of [...nodes].sort((a, b) => earliestStart(a) - earliestStart(b))) {
    const height = 1 + assignLanes(node.children);
    const lane = firstFreeLane(freeAt, earliestStart(node), height);
    for (let usedLane = lane; usedLane < lane + height; usedLane++) freeAt[usedLane] = latestEnd(node);
    node.lane = lane;
    moveDown(node.children, lane + 1);
  }
  return freeAt.length;
}

/** Return the first of `height` adjacent lanes that are free at this time. */
function firstFreeLane(freeAt: readonly number[], from: number, height: number): number {
  let freeCount = 0;
  for (let lane = 0; lane < freeAt.length; lane++) {
    freeCount = (freeAt[lane] ?? -Infinity) <= from ? freeCount + 1 : 0;
    if (freeCount === height) return lane - height + 1;
  }
  return freeAt.length - freeCount;
}

/** The earliest start of a span and its inner spans: agents have clocks of their own. */
const earliestStart = (node: Node): number =>
  node.children.reduce((min, child) => Math.min(min, earliestStart(child)), node.from);
/** The latest end of a span and its inner spans. */
const latestEnd = (node: Node): number =>
  node.children.reduce((max, child) => Math.max(max, latestEnd(child)), node.to);

function moveDown(nodes: readonly Node[], by: number): void {
  for (const node of nodes) {
    node.lane += by;
    moveDown(node.children, by);
  }
}
