/** The filters of a list, as words. */
import type { Address, AddressParams } from "@/views/addressParameters";
import { formatMoney } from "@/views/amounts";
import { ageMs, dayBounds, formatDay, localDay } from "@/views/days";
import { formatShort } from "@/views/time";

export interface FilterChip {
  readonly key: string;
  readonly text: string;
  /** The change of the address that removes the filter. */
  readonly change: Partial<Record<keyof AddressParams, undefined>>;
}

const momentFormat = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

export function filterChips(address: Address): readonly FilterChip[] {
  const { of, since, until, model, provider, error } = address;
  const time = timeText(since, until);
  const ended = timeText(address.endedSince, address.endedUntil);
  const cost = rangeText(address.minCost, address.maxCost, formatMoney);
  const duration = rangeText(address.minSeconds, address.maxSeconds, formatSeconds);
  return [
    ...(of === undefined ? [] : [{ key: "worker", text: `Worker is ${of}`, change: { of: undefined } }]),
    ...(time === null ? [] : [{ key: "time", text: time, change: { since: undefined, until: undefined } }]),
    ...(ended === null
      ? []
      : [{ key: "ended", text: `Ended: ${ended}`, change: { endedSince: undefined, endedUntil: undefined } }]),
    ...(model === undefined ? [] : [{ key: "model", text: model, change: { model: undefined } }]),
    ...(provider === undefined ? [] : [{ key: "provider", text: provider, change: { provider: undefined } }]),
    ...(cost === null
      ? []
      : [{ key: "cost", text: `Cost ${cost}`, change: { minCost: undefined, maxCost: undefined } }]),
    ...(duration === null
      ? []
      : [
          {
            key: "duration",
            text: `Duration ${duration}`,
            change: { minSeconds: undefined, maxSeconds: undefined },
          },
        ]),
    ...(error === undefined ? [] : [{ key: "error", text: error, change: { error: undefined } }]),
    ...(address.errorGroup === undefined
      ? []
      : [{ key: "group", text: address.errorGroup, change: { errorGroup: undefined } }]),
  ];
}

/** Return a range of time in words: a whole day by its name, otherwise where it begins and ends. */
export function timeText(since: string | undefined, until: string | undefined): string | null {
  if (since === undefined) return until === undefined ? null : `before ${momentText(until)}`;
  if (ageMs(since) !== null)
    return until === undefined ? ageText(since) : `${ageText(since)}, before ${momentText(until)}`;
  if (until === undefined) return `since ${momentText(since)}`;
  const day = localDay(since);
  const bounds = dayBounds(day);
  return bounds.since === since && bounds.until === until
    ? formatDay(day)
    : `${momentText(since)} – ${momentText(until)}`;
}

const AGE_UNITS: Readonly<Record<string, string>> = { m: "minute", h: "hour", d: "day" };

/** Return an age in words: `Last hour`, `Last 7 days`. */
export function ageText(age: string): string {
  const [number, unit] = [parseInt(age), AGE_UNITS[age.slice(-1)] ?? ""];
  return number === 1 ? `Last ${unit}` : `Last ${number} ${unit}s`;
}

function momentText(at: string): string {
  const day = localDay(at);
  return dayBounds(day).since === at ? formatDay(day) : momentFormat.format(new Date(at));
}

/** Return a range in words: `at least $1.00`, `$0.10 – $1.00`; null if it has no bound. */
export function rangeText(min: number | undefined, max: number | undefined, format: (value: number) => string) {
  if (min !== undefined && max !== undefined) return `${format(min)} – ${format(max)}`;
  if (min !== undefined) return `at least ${format(min)}`;
  return max === undefined ? null : `at most ${format(max)}`;
}

export const formatSeconds = (seconds: number) =>
  seconds < 60 ? `${seconds} s` : formatShort(seconds * 1_000).replace(/ 0+[sm]$|(?<=h) 0m$/, "");
