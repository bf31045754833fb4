/**
 * The time axis of a chart: true to scale, except that long idle times are drawn short and marked. So a run that waited
 * a night for an answer still shows what it did before and after.
 */

/** A time range, in milliseconds. */
export type Stretch = readonly [from: number, to: number];

/** An idle time that is drawn shorter than it was. */
export interface Break {
  /** Position in the chart, in 0..1. */
  readonly from: number;
  readonly to: number;
  /** The real length. */
  readonly ms: number;
}

export interface Axis {
  /** Return the position of a time in the chart, in 0..1. */
  at(ms: number): number;
  readonly breaks: readonly Break[];
  /** The total time. */
  readonly ms: number;
}

/** Shorter idle times are not drawn short. */
const LEAST_BREAK_MS = 5_000;
/** Idle times below this share of the busy time are not drawn short. */
const LEAST_BREAK_SHARE = 0.1;
/** The width of one break, and the largest width of all breaks together. */
const BREAK_WIDTH = 0.07;
const BREAKS_WIDTH = 0.4;

/** Build the axis over `whole`. `moments` are the starts and ends of spans: a break never crosses one. */
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

/** Split the range at every start and end. */
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

/** Return the parts of a range that no interval of `busy` covers, in order. */
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

/** Interpolate between the knots. */
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
