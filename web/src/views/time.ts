/** Times and durations as text. */

const UNITS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_536_000],
  ["month", 2_592_000],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
];
const relativeFormat = new Intl.RelativeTimeFormat("en", { numeric: "always", style: "narrow" });

/** Format how long ago: `just now`, `2m ago`, `3h ago`. */
export function formatAgo(at: string, now: number): string {
  const seconds = Math.round((now - Date.parse(at)) / 1000);
  for (const [unit, length] of UNITS) {
    if (seconds >= length) return relativeFormat.format(-Math.floor(seconds / length), unit);
  }
  return "just now";
}

/** Format when something happens: `in 23h`, `in 5m`, `now`. */
export function formatIn(at: string, now: number): string {
  const seconds = Math.round((Date.parse(at) - now) / 1000);
  for (const [unit, length] of UNITS) {
    if (seconds >= length) return relativeFormat.format(Math.floor(seconds / length), unit);
  }
  return seconds > 0 ? "in less than a minute" : "now";
}

const AGE_UNITS: readonly [string, number][] = [
  ["y", 31_536_000],
  ["d", 86_400],
  ["h", 3_600],
  ["m", 60],
];

/** Format an age in as few characters as possible: `now`, `12m`, `3h`, `2d`. */
export function formatAge(at: string, now: number): string {
  const seconds = Math.round((now - Date.parse(at)) / 1000);
  for (const [unit, length] of AGE_UNITS) if (seconds >= length) return `${Math.floor(seconds / length)}${unit}`;
  return "now";
}

/** Format a duration: `42 ms`, `0.7 s`, `4.2 s`, `1m 45s`, `2h 3m`, `3d 4h`. */
export function formatDuration(ms: number): string {
  if (Math.round(ms) < 100) return `${Math.max(0, Math.round(ms))} ms`;
  const tenths = Math.round(ms / 100);
  if (tenths < 600) return `${(tenths / 10).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m ${seconds % 60}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1_440) return `${Math.floor(minutes / 60)}h ${minutes % 60}m`;
  return `${Math.floor(minutes / 1_440)}d ${Math.floor((minutes % 1_440) / 60)}h`;
}

const dateTimeFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });
const clockFormat = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

const minuteFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** Format date and time in the reader's time zone. */
export const formatDateTime = (at: string) => dateTimeFormat.format(new Date(at));
/** Format the time of day without seconds. */
export const formatMinute = (at: string) => minuteFormat.format(new Date(at));
/** Format the time of day in the reader's time zone. */
export const formatClock = (at: string) => clockFormat.format(new Date(at));

/** Format a duration for people who glance at it: `42 s`, `6m 12s`, `12m`, `1h 48m`, `3d`. */
export function formatShort(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 600) return `${Math.floor(seconds / 60)}m ${String(seconds % 60).padStart(2, "0")}s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3_600)}h ${Math.floor((seconds % 3_600) / 60)}m`;
  return `${Math.floor(seconds / 86_400)}d`;
}
