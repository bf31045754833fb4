/** Calendar days in the reader's time zone, written `2026-11-06`. */

/** Return the beginning of the day in the reader's time zone. */
export function dayStart(now: number): string {
  const day = new Date(now);
  day.setHours(0, 0, 0, 0);
  return day.toISOString();
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
