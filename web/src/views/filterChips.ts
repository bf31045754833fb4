/** The filters of a list that have no control of their own, as words. */
import type { Address } from "@/views/addressParameters";
import { dayBounds, formatDay } from "@/views/overview";

export interface FilterChip {
  readonly key: string;
  readonly text: string;
  /** The change of the address that removes the filter. */
  readonly change: Partial<Record<"since" | "until" | "model" | "provider" | "error", undefined>>;
}

const momentFormat = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

export function filterChips({ since, until, model, provider, error }: Address): readonly FilterChip[] {
  const time = timeText(since, until);
  return [
    ...(time === null ? [] : [{ key: "time", text: time, change: { since: undefined, until: undefined } }]),
    ...(model === undefined ? [] : [{ key: "model", text: model, change: { model: undefined } }]),
    ...(provider === undefined ? [] : [{ key: "provider", text: provider, change: { provider: undefined } }]),
    ...(error === undefined ? [] : [{ key: "error", text: error, change: { error: undefined } }]),
  ];
}

/** Return a range of time in words: a whole day by its name, otherwise where it begins and ends. */
function timeText(since: string | undefined, until: string | undefined): string | null {
  if (since === undefined) return until === undefined ? null : `before ${momentText(until)}`;
  if (until === undefined) return `since ${momentText(since)}`;
  const day = localDay(since);
  const bounds = dayBounds(day);
  return bounds.since === since && bounds.until === until
    ? formatDay(day)
    : `${momentText(since)} – ${momentText(until)}`;
}

function momentText(at: string): string {
  const day = localDay(at);
  return dayBounds(day).since === at ? formatDay(day) : momentFormat.format(new Date(at));
}

function localDay(at: string): string {
  const time = new Date(at);
  const pad = (number: number) => String(number).padStart(2, "0");
  return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())}`;
}
