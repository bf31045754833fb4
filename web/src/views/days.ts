/** Calendar days in the reader's time zone, written `2026-11-06`. */

/** Return the beginning of the day in the reader's time zone. */
export function dayStart(now: number): string {
  const day = new Date(now);
  day.setHours(0, 0, 0, 0);
  return day.toISOString();
}

const UNIT_MS: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Return how long an age such as `90m`, `1h` or `7d` is, in milliseconds; null for any other text. */
export function ageMs(text: string): number | null {
  const [, number, unit = ""] = /^([1-9]\d{0,5})([mhd])$/.exec(text) ?? [];
  return number === undefined ? null : Number(number) * (UNIT_MS[unit] ?? 0);
}

/** Return the time from which a filter counts: the time itself, or that of so long ago. */
export function startOf(since: string | undefined, now: number): string | undefined {
  const ms = since === undefined ? null : ageMs(since);
  return ms === null ? since : new Date(now - ms).toISOString();
}

/** Return the first moment of a calendar day such as `2026-11-06` and of the next day, in the reader's time zone. */
export function dayBounds(day: string): { since: string; until: string } {
  const [year = 0, month = 1, date = 1] = day.split("-").map(Number);
  const at = (offset: number) => new Date(year, month - 1, date + offset).toISOString();
  return { since: at(0), until: at(1) };
}

const dayFormat = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short" });

/** Format a calendar day: `Fri 6 Nov`. */
export const formatDay = (day: string) => dayFormat.format(new Date(dayBounds(day).since)).replace(",", "");
/** Return the number of a day in its month. */
export const dayNumber = (day: string) => String(Number(day.split("-")[2]));

/** Return the calendar day of a time. */
export function localDay(at: string): string {
  const time = new Date(at);
  const pad = (number: number) => String(number).padStart(2, "0");
  return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
}
