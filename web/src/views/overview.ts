/** What the overview shows: days as stacked bars, tiles in words, and links to the runs behind each number. */
import type { FailureGroup, RankedRun, Stats, StatsDay } from "@/api";
import { type Address, type AddressParams, isFiltered, withChange } from "@/views/addressParameters";
import { dayBounds, dayStart, formatDay } from "@/views/days";
import { filterChips } from "@/views/filterChips";
import { axisTicks } from "@/views/charts";
import type { Range, Stack } from "@/views/overviewParameters";
import { formatShort } from "@/views/time";

const HOUR_MS = 3_600_000;
const DAYS: Record<Exclude<Range, "24h">, number> = { "7d": 7, "14d": 14, "30d": 30 };

/** Return when a range begins: 24 hours ago, or at the beginning of a day in the reader's time zone. */
export function rangeStart(range: Range, now: number): string {
  if (range === "24h") return new Date(now - 24 * HOUR_MS).toISOString();
  const day = new Date(now);
  day.setHours(0, 0, 0, 0);
  day.setDate(day.getDate() - (DAYS[range] - 1));
  return day.toISOString();
}

const longFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "long" });

/** Format the range that the days cover: `5 – 18 November`, `30 October – 12 November`. */
export function formatRange(days: readonly StatsDay[]): string {
  const [first, last] = [days[0], days.at(-1)];
  if (!first || !last) return "";
  const [from, to] = [first, last].map(({ day }) => longFormat.format(new Date(dayBounds(day).since))) as [
    string,
    string,
  ];
  if (from === to) return to;
  const [fromDay = "", fromMonth] = from.split(" ");
  return fromMonth === to.split(" ")[1] ? `${fromDay} – ${to}` : `${from} – ${to}`;
}

/** Series with a color of their own; the rest is one series. */
const SERIES = 5;
export const OTHER = "other";
/** What the statistics call spending without a model or provider. */
export const UNKNOWN = "unknown";

export interface Series {
  readonly name: string;
  readonly total: number;
  /** Whether it stands for all that have no series of their own. */
  readonly isRest: boolean;
  /** Whether the list can be filtered by its name. */
  readonly isFilter: boolean;
  readonly color: string;
}

export interface DayBar {
  readonly day: string;
  readonly total: number;
  readonly runs: number;
  readonly failed: number;
  /** From bottom to top, in the order of the series; without those that cost nothing. */
  readonly parts: readonly { series: Series; value: number }[];
}

export interface SpendChart {
  readonly series: readonly Series[];
  readonly bars: readonly DayBar[];
  readonly ticks: readonly number[];
  readonly top: number;
  readonly average: number;
}

/** Return the days as stacked bars: the series that cost most have a color, all others together are one series. */
export function spendChart(days: readonly StatsDay[], by: Stack): SpendChart {
  const totals = new Map<string, number>();
  for (const day of days)
    for (const [name, usd] of Object.entries(day.by[by])) totals.set(name, (totals.get(name) ?? 0) + (usd ?? 0));
  const ranked = [...totals].filter(([, usd]) => usd > 0).sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
  const own = ranked.length > SERIES ? ranked.slice(0, SERIES - 1) : ranked;
  const rest = ranked.slice(own.length).reduce((sum, [, usd]) => sum + usd, 0);
  const names = own.map(([name, total]) => ({
    name,
    total,
    isRest: false,
    isFilter: name !== UNKNOWN || by === "worker",
  }));
  const others = rest > 0 ? [{ name: OTHER, total: rest, isRest: true, isFilter: false }] : [];
  const series = [...names, ...others].map((each, index) => ({
    ...each,
    color: `var(--cat-${index + 1})`,
  }));
  const bars = days.map((day) => dayBar(day, by, series));
  const ticks = axisTicks(Math.max(0, ...bars.map(({ total }) => total)));
  const sum = bars.reduce((total, bar) => total + bar.total, 0);
  return { series, bars, ticks, top: ticks.at(-1) ?? 1, average: days.length ? sum / days.length : 0 };
}

function dayBar(day: StatsDay, by: Stack, series: readonly Series[]): DayBar {
  const own = new Set(series.filter(({ isRest }) => !isRest).map(({ name }) => name));
  const entries = Object.entries(day.by[by]);
  const rest = entries.reduce((sum, [name, usd]) => (own.has(name) ? sum : sum + (usd ?? 0)), 0);
  const parts = series
    .map((each) => ({ series: each, value: each.isRest ? rest : (day.by[by][each.name] ?? 0) }))
    .filter(({ value }) => value > 0);
  const total = parts.reduce((sum, { value }) => sum + value, 0);
  return { day: day.day, total, runs: day.runs, failed: day.failed, parts };
}

/** Format an amount for an axis or a legend, without cents: `$238`; amounts below a dollar keep two digits; null is unknown. */
export function formatDollars(usd: number | null): string {
  if (usd === null) return "–";
  if (usd === 0) return "$0";
  if (usd >= 10) return `$${Math.round(usd).toLocaleString("en")}`;
  if (usd >= 1) return `$${Number(usd.toFixed(1))}`;
  return usd >= 0.01 ? `$${usd.toFixed(2)}` : "<$0.01";
}

/** Format an amount with cents: `$9.09`; null is unknown. */
export const formatCents = (usd: number | null): string =>
  usd === null
    ? "–"
    : usd > 0 && usd < 0.005
      ? "<$0.01"
      : `$${usd.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;

/** Describe a bar for screen readers. */
export const barLabel = ({ day, total, runs, failed, parts }: DayBar): string =>
  [
    `${formatDay(day)}: ${formatCents(total)}`,
    ...parts.map(({ series, value }) => `${series.name} ${formatCents(value)}`),
    `${runs} ${runs === 1 ? "run" : "runs"}, ${failed} failed`,
  ].join(", ");

export interface TileTexts {
  readonly running: string;
  readonly failed: string;
  readonly spent: string;
}

/** Return what the tiles say below their figures. */
export function tileTexts({ tiles, days }: Stats, now: number): TileTexts {
  const since = (at: string | null, before: string) =>
    at === null ? "" : `${before} ${formatShort(Math.max(0, now - Date.parse(at)))}`;
  const percent = (share: number) => `${Number(share.toFixed(1))} %`;
  const today = tiles.ended_today ? percent((100 * tiles.failed_today) / tiles.ended_today) : null;
  // On the first day, what is usual is what happened today.
  const usual = tiles.failed_percent_range === null ? null : percent(tiles.failed_percent_range);
  const average = days.length ? days.reduce((sum, { cost_usd: usd }) => sum + (usd ?? 0), 0) / days.length : 0;
  const joined = (...parts: (string | false | null)[]) => parts.filter(Boolean).join(", ");
  return {
    running: tiles.queued
      ? joined(`${tiles.queued.toLocaleString("en")} queued`, since(tiles.oldest_queued_at, "oldest"))
      : "none queued",
    failed: tiles.ended_today
      ? joined(
          `of ${tiles.ended_today.toLocaleString("en")} · ${today ?? ""}`,
          usual !== null && usual !== today && `usually ${usual}`,
        )
      : "nothing has ended",
    spent: tiles.unpriced_today
      ? `${tiles.unpriced_today.toLocaleString("en")} without a price`
      : `${formatDollars(average)} a day on average`,
  };
}

/** The filters of the address, without the selected run: links keep them. */
function filtersOf({ owner, worker, event, find, ...filters }: Address): AddressParams {
  return filters;
}

export interface OverviewLinks {
  readonly running: AddressParams;
  readonly failedToday: AddressParams;
  readonly today: AddressParams;
  readonly failures: AddressParams;
  readonly day: (day: string) => AddressParams;
  readonly series: (name: string, by: Stack) => AddressParams;
  readonly failure: (group: FailureGroup) => AddressParams;
  readonly run: (run: RankedRun) => AddressParams;
}

/** Return the addresses of the runs behind each number. They keep the filters of the overview. */
export function overviewLinks(address: Address, since: string, now: number): OverviewLinks {
  const filters = filtersOf(address);
  // The numbers count sub-runs too.
  const link = (change: AddressParams) => withChange(filters, { flat: true, ...change });
  return {
    running: link({ status: "running" }),
    // A failure and its cost count on the day on which the run ended.
    failedToday: link({ status: "failed", endedSince: dayStart(now) }),
    today: link({ endedSince: dayStart(now) }),
    failures: link({ status: "failed", endedSince: since }),
    day: (day) => link(dayBounds(day)),
    series: (name, by) => link({ [by === "worker" ? "of" : by]: name, since }),
    failure: ({ code, group }) => link({ status: "failed", error: code, errorGroup: group, endedSince: since }),
    run: ({ run_id: id }) => withChange(filters, { worker: id }),
  };
}

/** Describe the filters in a few words: `all workers`, `repair · failed`. */
export function filterText(address: Address): string {
  if (!isFiltered(address)) return "all workers";
  const { status, channel, q } = address;
  return [status, ...filterChips(address).map(({ text }) => text), channel, q && `“${q}”`].filter(Boolean).join(" · ");
}

/** Return the share of failed calls: `6.1 %`. */
export const failedShare = ({ calls, failed }: { calls: number; failed: number }) =>
  calls ? `${((100 * failed) / calls).toFixed(1)} %` : "–";
/** From this share on, failed calls are shown in red. */
export const isFailingOften = ({ calls, failed }: { calls: number; failed: number }) =>
  failed >= 3 && failed / calls >= 0.05;

/** Describe the workers of a group: their names if they are few. */
export const workersText = (workers: readonly string[]) =>
  workers.length > 3 ? `${workers.length} workers` : workers.join(", ");
