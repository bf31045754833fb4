/**
 * The time axis of a chart: true to scale, except that long idle times are drawn short and marked. So a run that waited
 * a night for an answer still shows what it did before and after.
 */

/** A time range, in milliseconds. */
export type Interval = readonly [from: number, to: number];

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
  readonly at: (ms: number) => number;
  readonly breaks: readonly Break[];
  /** The total time. */
  readonly ms: number;
}

/** Shorter idle times are not drawn short. */
const MIN_BREAK_MS = 5_000;
/** Idle times below this share of the busy time are not drawn short. */
const MIN_BREAK_SHARE = 0.1;
/** The width of one break, and the largest width of all breaks together. */
const BREAK_WIDTH = 0.07;
const MAX_BREAKS_WIDTH = 0.4;

/** Build the axis over `total`. `moments` are the starts and ends of spans: a break never crosses one. */
export function axisOf(total: Interval, moments: Iterable<number>, idle: readonly Interval[]): Axis {
  const pieces = splitIntoPieces(total, moments, idle);
  const ms = total[1] - total[0];
  const busyMs = ms - totalMs(pieces.filter((piece) => piece.idle));
  const isLong = (piece: Piece) =>
    piece.idle && piece.to - piece.from >= MIN_BREAK_MS && piece.to - piece.from > busyMs * MIN_BREAK_SHARE;
  const long = pieces.filter(isLong);
  const scaledMs = ms - totalMs(long);
  const breakWidth = scaledMs > 0 ? Math.min(BREAK_WIDTH, MAX_BREAKS_WIDTH / long.length) : 1 / long.length;
  const perMs = scaledMs > 0 ? (1 - long.length * (long.length ? breakWidth : 0)) / scaledMs : 0;

  const knots: Knot[] = [{ ms: total[0], x: 0 }];
  const breaks: Break[] = [];
  let x = 0;
  for (const piece of pieces) {
    const width = isLong(piece) ? breakWidth : (piece.to - piece.from) * perMs;
    if (isLong(piece)) breaks.push({ from: x, to: Math.min(1, x + width), ms: piece.to - piece.from });
    x = Math.min(1, x + width);
    knots.push({ ms: piece.to, x });
  }
  return { at: (moment) => interpolate(knots, moment), breaks, ms };
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
function splitIntoPieces(total: Interval, moments: Iterable<number>, idle: readonly Interval[]): Piece[] {
  const cuts = new Set([...total, ...moments, ...idle.flat()].filter((ms) => ms >= total[0] && ms <= total[1]));
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
export function uncovered(total: Interval, busy: readonly Interval[]): Interval[] {
  const gaps: Interval[] = [];
  let freeFrom = total[0];
  for (const [from, to] of [...busy].sort((a, b) => a[0] - b[0])) {
    if (from > freeFrom) gaps.push([freeFrom, Math.min(from, total[1])]);
    freeFrom = Math.max(freeFrom, to);
    if (freeFrom >= total[1]) return gaps;
  }
  gaps.push([freeFrom, total[1]]);
  return gaps;
}

const totalMs = (pieces: readonly Piece[]) => pieces.reduce((ms, piece) => ms + piece.to - piece.from, 0);

/** Interpolate between the knots. */
function interpolate(knots: readonly Knot[], ms: number): number {
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
