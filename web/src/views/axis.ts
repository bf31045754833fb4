/**
 * The axis of a chart of time: true to scale, except that long idle stretches are drawn short and marked, so that a run
 * that waited a night for an answer still shows what it did before and after.
 */

/** From and to, in milliseconds. */
export type Stretch = readonly [from: number, to: number];

/** A stretch that is drawn shorter than it was. */
export interface Break {
  /** Where it is drawn, in 0..1. */
  readonly from: number;
  readonly to: number;
  /** How long it really was. */
  readonly ms: number;
}

export interface Axis {
  /** Where a moment is drawn, in 0..1. */
  at(ms: number): number;
  readonly breaks: readonly Break[];
  /** How long all of it was. */
  readonly ms: number;
}

/** Shorter than this, a stretch is not worth a mark; */
const LEAST_BREAK_MS = 5_000;
/** nor is it where it is less than this part of the time in which something was done. */
const LEAST_BREAK_SHARE = 0.1;
/** How much of the chart one break takes, and all of them at most. */
const BREAK_WIDTH = 0.07;
const BREAKS_WIDTH = 0.4;

/** The axis over `whole`. `moments` are when things began and ended: a break never reaches over one. */
export function axisOf(whole: Stretch, moments: Iterable<number>, idle: readonly Stretch[]): Axis {
  const pieces = piecesOf(whole, moments, idle);
  const ms = whole[1] - whole[0];
  const done = ms - sum(pieces.filter((piece) => piece.idle));
  const isLong = (piece: Piece) =>
    piece.idle && piece.to - piece.from >= LEAST_BREAK_MS && piece.to - piece.from > done * LEAST_BREAK_SHARE;
  const long = pieces.filter(isLong);
  const scaled = ms - sum(long);
  const breakWidth = scaled > 0 ? Math.min(BREAK_WIDTH, BREAKS_WIDTH / long.length) : 1 / long.length;
  const perMs = scaled > 0 ? (1 - long.length * (long.length ? breakWidth : 0)) / scaled : 0;

  const knots: Knot[] = [{ ms: whole[0], x: 0 }];
  const breaks: Break[] = [];
  let x = 0;
  for (const piece of pieces) {
    const width = isLong(piece) ? breakWidth : (piece.to - piece.from) * perMs;
    if (isLong(piece)) breaks.push({ from: x, to: Math.min(1, x + width), ms: piece.to - piece.from });
    x = Math.min(1, x + width);
    knots.push({ ms: piece.to, x });
  }
  return { at: (moment) => between(knots, moment), breaks, ms };
}

interface Piece {
  from: number;
  to: number;
  idle: boolean;
}
interface Knot {
  ms: number;
  x: number;
}

/** The whole, cut where anything begins or ends. */
function piecesOf(whole: Stretch, moments: Iterable<number>, idle: readonly Stretch[]): Piece[] {
  const cuts = new Set([...whole, ...moments, ...idle.flat()].filter((ms) => ms >= whole[0] && ms <= whole[1]));
  const sorted = [...cuts].sort((a, b) => a - b);
  const pieces: Piece[] = [];
  let next = 0;
  for (let i = 1; i < sorted.length; i++) {
    const [from, to] = [sorted[i - 1] ?? 0, sorted[i] ?? 0];
    while (next < idle.length && (idle[next]?.[1] ?? 0) <= from) next++;
    pieces.push({ from, to, idle: (idle[next]?.[0] ?? Infinity) <= from });
  }
  return pieces;
}

/** What no stretch of `busy` covers; in order. */
export function uncovered(whole: Stretch, busy: readonly Stretch[]): Stretch[] {
  const left: Stretch[] = [];
  let free = whole[0];
  for (const [from, to] of [...busy].sort((a, b) => a[0] - b[0])) {
    if (from > free) left.push([free, Math.min(from, whole[1])]);
    free = Math.max(free, to);
    if (free >= whole[1]) return left;
  }
  left.push([free, whole[1]]);
  return left;
}

const sum = (pieces: readonly Piece[]) => pieces.reduce((ms, piece) => ms + piece.to - piece.from, 0);

/** Straight from knot to knot. */
function between(knots: readonly Knot[], ms: number): number {
  let [low, high] = [0, knots.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((knots[middle]?.ms ?? 0) <= ms) low = middle;
    else high = middle;
  }
  const [a, b] = [knots[low], knots[high]];
  if (!a || !b || b.ms === a.ms || ms <= a.ms) return a?.x ?? 0;
  return a.x + ((b.x - a.x) * Math.min(ms - a.ms, b.ms - a.ms)) / (b.ms - a.ms);
}
