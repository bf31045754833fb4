/** Where the time of a run went: a bar for each step, tool call and sub-run, in lanes, what is inside below. */
import type { Span, Spans } from "@/api";
import { axisOf, type Break, type Stretch, uncovered } from "./axis";

export interface Bar {
  /** Of several, the first. */
  readonly span: Span;
  /** How many it stands for. */
  readonly count: number;
  /** Empty where it stands for several of different names. */
  readonly name: string;
  /** From 0, the topmost. */
  readonly lane: number;
  /** Where it is drawn, in 0..1. */
  readonly from: number;
  readonly to: number;
  /** How long it took; how long they took together, where it stands for several. */
  readonly ms: number;
  /** Whether it goes on. */
  readonly open: boolean;
}

export interface Chart {
  readonly bars: readonly Bar[];
  readonly breaks: readonly Break[];
  readonly lanes: number;
  readonly ms: number;
}

/** Agents do not say of their own tools which ones wait for somebody; this one does nothing else. */
const WAITS: ReadonlySet<string> = new Set(["AskUserQuestion"]);

/** Whether it does nothing but wait, for somebody or for a time. */
export const isWait = (span: Span) => span.waits === true || WAITS.has(span.name);

/** How it ended, where not well. */
export type Ending = "failed" | "cancelled";

/** `left` are the events by which something ended because the run was cancelled. */
export const endingOf = ({ error, end_seq }: Span, left: ReadonlySet<number>): Ending | null =>
  !error ? null : end_seq !== null && left.has(end_seq) ? "cancelled" : "failed";

interface Node {
  readonly span: Span;
  readonly from: number;
  /** Infinite until it has ended. */
  readonly to: number;
  readonly inside: Node[];
  lane: number;
}

/** The spans in their lanes. What the time is does not matter to them: what has not ended keeps its lane for ever. */
export interface Lanes {
  readonly nodes: readonly Node[];
  readonly count: number;
  readonly from: number;
  readonly to: number | null;
}

export function lanesOf(spans: Spans): Lanes {
  const nodes: Node[] = spans.spans.map((span) => {
    const from = Date.parse(span.started_at);
    // Clocks are set back now and then; nothing ends before it began.
    const to = span.ended_at === null ? Infinity : Math.max(from, Date.parse(span.ended_at));
    return { span, from, to, inside: [], lane: 0 };
  });
  const count = pack(nested(nodes));
  const began = spans.started_at === null ? Infinity : Date.parse(spans.started_at);
  const from = nodes.reduce((least, node) => Math.min(least, node.from), began);
  return {
    nodes,
    count,
    from: Number.isFinite(from) ? from : 0,
    to: spans.ended_at === null ? null : Date.parse(spans.ended_at),
  };
}

/**
 * The chart at a moment. `now` is null where nothing goes on: then the last that is known is the end. `waits` says that
 * the run waits now, for whatever.
 */
export function chartOf(lanes: Lanes, now: number | null, waits: boolean): Chart {
  const { nodes, from } = lanes;
  const last = nodes.reduce((most, node) => Math.max(most, node.from, Number.isFinite(node.to) ? node.to : 0), from);
  const whole: Stretch = [from, Math.max(last, lanes.to ?? now ?? last)];
  const end = (node: Node) => Math.min(node.to, whole[1]);
  const busy = nodes.flatMap((node) => busyIn(node, end(node)));
  const idle = uncovered(whole, waits ? busy.map(([a, b]): Stretch => [a, b >= whole[1] ? last : b]) : busy);
  const axis = axisOf(
    whole,
    nodes.flatMap((node) => [node.from, end(node)]),
    idle,
  );
  const bars = nodes.map((node): Bar => {
    const open = node.to === Infinity;
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
      open,
    };
  });
  return { bars: mergedBars(bars), breaks: axis.breaks, lanes: lanes.count, ms: axis.ms };
}

/** Bars that are narrower than this part of the chart can neither be told apart nor pointed at. */
const LEAST_WIDTH = 1 / 160;

/** Neighbours in a lane that are too narrow to be drawn side by side become one; none is left out. */
export function mergedBars(bars: readonly Bar[]): Bar[] {
  const merged: Bar[] = [];
  const last = new Map<string, number>();
  for (const bar of bars.toSorted((a, b) => a.from - b.from)) {
    const look = `${bar.lane} ${bar.span.kind} ${isWait(bar.span)} ${bar.span.error} ${bar.open}`;
    const place = last.get(look);
    const before = place === undefined ? undefined : merged[place];
    if (place === undefined || !before || bar.to - before.from >= LEAST_WIDTH) last.set(look, merged.push(bar) - 1);
    else
      merged[place] = {
        ...before,
        count: before.count + bar.count,
        name: before.name === bar.name ? bar.name : "",
        to: Math.max(before.to, bar.to),
        ms: before.ms + bar.ms,
      };
  }
  const order = new Map(bars.map((bar, index) => [bar.span, index]));
  return merged.sort((a, b) => (order.get(a.span) ?? 0) - (order.get(b.span) ?? 0));
}

const MANY: Record<Span["kind"], string> = { step: "steps", tool: "tool calls", run: "sub-runs" };

/** `Bash`; of several `12 × Bash`, or `12 tool calls` where they have different names. */
export function barName({ count, name, span }: Pick<Bar, "count" | "name" | "span">): string {
  if (count === 1) return name;
  return name ? `${count.toLocaleString("en")} × ${name}` : `${count.toLocaleString("en")} ${MANY[span.kind]}`;
}

/** When something was done in a span itself, and it did not only wait for what is inside, or for somebody. */
function busyIn(node: Node, end: number): Stretch[] {
  const { span, from, inside } = node;
  if (span.kind !== "step") return isWait(span) ? [] : [[from, end]];
  if (inside.length === 0) return [[from, end]];
  const tools = inside.filter((one) => one.span.kind === "tool");
  // A step of steps does nothing by itself; one that calls tools thinks between the calls.
  if (tools.length === 0) return [];
  const waits = tools.filter((one) => isWait(one.span));
  return uncovered(
    [from, end],
    waits.map((one): Stretch => [one.from, Math.min(one.to, end)]),
  );
}

/** Hangs each below the step it belongs to, by their paths, and gives those that belong to none. */
function nested(nodes: readonly Node[]): Node[] {
  const roots: Node[] = [];
  const newest = new Map<string, Node>();
  for (const node of nodes) {
    const { kind, path } = node.span;
    const around = placeOf(newest, kind === "tool" ? path : outside(path), node.from);
    (around?.inside ?? roots).push(node);
    if (kind !== "tool") newest.set(path, node);
  }
  return roots;
}

/** The innermost step at this path or around it that has not ended by then. */
function placeOf(newest: ReadonlyMap<string, Node>, path: string, at: number): Node | undefined {
  for (let place = path; place; place = outside(place)) {
    const node = newest.get(place);
    if (node && node.to >= at) return node;
  }
  return undefined;
}

const outside = (path: string) => path.slice(0, Math.max(0, path.lastIndexOf(".")));

/**
 * Gives each its lane: below the one that it is inside of, with all of its own inside as one block, as far up as there
 * is room. How many lanes they take.
 */
function pack(nodes: readonly Node[]): number {
  /** When each lane is free again. */
  const free: number[] = [];
  for (const node of [...nodes].sort((a, b) => since(a) - since(b))) {
    const height = 1 + pack(node.inside);
    const lane = room(free, since(node), height);
    for (let taken = lane; taken < lane + height; taken++) free[taken] = until(node);
    node.lane = lane;
    lower(node.inside, lane + 1);
  }
  return free.length;
}

/** The first of so many lanes next to each other that are free by then. */
function room(free: readonly number[], from: number, height: number): number {
  let found = 0;
  for (let lane = 0; lane < free.length; lane++) {
    found = (free[lane] ?? -Infinity) <= from ? found + 1 : 0;
    if (found === height) return lane - height + 1;
  }
  return free.length - found;
}

/** When it has begun, or the first inside: agents have clocks of their own. */
const since = (node: Node): number => node.inside.reduce((least, one) => Math.min(least, since(one)), node.from);
/** When it has ended, and all inside. */
const until = (node: Node): number => node.inside.reduce((most, one) => Math.max(most, until(one)), node.to);

function lower(nodes: readonly Node[], by: number): void {
  for (const node of nodes) {
    node.lane += by;
    lower(node.inside, by);
  }
}
