/** The fields of the filter menu, their choices, and what a typed text can mean in each. */
import type { Channel, Run, Stats, Worker } from "@/api";
import type { Address, AddressParams } from "@/views/addressParameters";
import { formatMoney } from "@/views/amounts";
import { ageText, formatSeconds, rangeText, timeText } from "@/views/filterChips";
import { channelOptions, type FilterOption, workerOptions } from "@/views/filterOptions";
import { ageMs, dayBounds, dayStart, formatDay } from "@/views/days";
import { UNKNOWN } from "@/views/overview";

type Change = { [K in keyof AddressParams]?: AddressParams[K] | undefined };

export interface FilterChoice {
  readonly label: string;
  /** The change of the address that sets the filter, or removes it if it is set. */
  readonly change: Change;
  readonly isSet: boolean;
}

export interface FilterField {
  readonly label: string;
  /** What the field filters by now; null if it does not. */
  readonly current: string | null;
  readonly choices: readonly FilterChoice[];
  /** What a typed text can mean; empty if nothing. */
  readonly parse: (text: string) => readonly FilterChoice[];
}

export interface FilterSources {
  readonly workers: { readonly workers: readonly Worker[] } | undefined;
  readonly channels: readonly Channel[] | undefined;
  readonly seenRuns: readonly Run[];
  readonly stats: Stats | undefined;
}

const HOUR_MS = 3_600_000;
const COSTS = [0.1, 1, 5, 20];
const SECONDS = [60, 600, 3_600];

/** Return the fields of the menu with their choices. */
export function filterFields(address: Address, sources: FilterSources, now: number): readonly FilterField[] {
  const { workers, channels, seenRuns, stats } = sources;
  const named = (names: readonly (string | null | undefined)[], selected: string | undefined): FilterOption[] =>
    [...new Set([...names, selected].flatMap((name) => (name && name !== UNKNOWN ? [name] : [])))]
      .sort((a, b) => a.localeCompare(b))
      .map((name) => ({ value: name, label: name }));
  const models = [...(stats?.by.model ?? []).map(({ name }) => name), ...seenRuns.map(({ model }) => model)];
  const providers = [...(stats?.by.provider ?? []).map(({ name }) => name), ...seenRuns.map((run) => run.provider)];
  const errors = [...(stats?.failures ?? []).map(({ code }) => code), ...seenRuns.map(({ error }) => error?.code)];
  return [
    timeField("Time", ["since", "until"], address, now),
    timeField("Ended", ["endedSince", "endedUntil"], address, now),
    textField("Worker", "of", address, workerOptions(workers, seenRuns, address.of)),
    textField("Model", "model", address, named(models, address.model)),
    textField("Provider", "provider", address, named(providers, address.provider)),
    textField("Channel", "channel", address, channelOptions(channels, seenRuns, address.channel)),
    rangeField("Cost", ["minCost", "maxCost"], address, COSTS, parseMoney, formatMoney),
    rangeField("Duration", ["minSeconds", "maxSeconds"], address, SECONDS, parseSeconds, formatSeconds),
    textField("Error", "error", address, named(errors, address.error)),
  ];
}

function textField(
  label: string,
  name: "of" | "model" | "provider" | "channel" | "error",
  address: Address,
  options: readonly FilterOption[],
): FilterField {
  const choice = ({ value, label }: FilterOption): FilterChoice => {
    const isSet = address[name] === value;
    return { label, isSet, change: { [name]: isSet ? undefined : value } };
  };
  return {
    label,
    current: options.find(({ value }) => value === address[name])?.label ?? null,
    choices: options.map(choice),
    parse: (text) => (options.some(({ value }) => value === text) ? [] : [choice({ value: text, label: text })]),
  };
}

function rangeField(
  label: string,
  [min, max]: ["minCost", "maxCost"] | ["minSeconds", "maxSeconds"],
  address: Address,
  common: readonly number[],
  parse: (text: string) => number | null,
  format: (value: number) => string,
): FilterField {
  const choice = (name: typeof min | typeof max, value: number): FilterChoice => {
    const isSet = address[name] === value;
    return {
      label: `${name === min ? "At least" : "At most"} ${format(value)}`,
      isSet,
      change: { [name]: isSet ? undefined : value },
    };
  };
  return {
    label,
    current: rangeText(address[min], address[max], format),
    choices: [...common.map((value) => choice(min, value)), ...common.slice(0, 1).map((value) => choice(max, value))],
    parse: (text) => {
      const value = parse(text);
      return value === null ? [] : [choice(min, value), choice(max, value)];
    },
  };
}

/** Parse an amount of US dollars: `2.5`, `$2.50`. */
export function parseMoney(text: string): number | null {
  const [, digits] = /^\$?\s*(\d{1,9}(?:\.\d{1,6})?)$/.exec(text.trim()) ?? [];
  return digits === undefined ? null : Number(digits);
}

const UNIT_SECONDS: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3_600, d: 86_400 };

/** Parse a duration: `90`, `90s`, `15m`, `2h`, `1d`. */
export function parseSeconds(text: string): number | null {
  const [, digits, unit] = /^(\d{1,6}(?:\.\d)?)\s*([smhd])?$/.exec(text.trim().toLowerCase()) ?? [];
  return digits === undefined ? null : Number(digits) * (UNIT_SECONDS[unit ?? "s"] ?? 1);
}

function timeField(
  label: string,
  [from, to]: ["since", "until"] | ["endedSince", "endedUntil"],
  address: Address,
  now: number,
): FilterField {
  const range = (label: string, since: string | undefined, until?: string): FilterChoice => {
    const isSet = address[from] === since && address[to] === until;
    return { label, isSet, change: { [from]: isSet ? undefined : since, [to]: isSet ? undefined : until } };
  };
  const yesterday = dayStart(Date.parse(dayStart(now)) - HOUR_MS);
  return {
    label,
    current: timeText(address[from], address[to]),
    choices: [
      // An age moves with the clock: a page that stays open shows the last hour, and not a fixed hour of the past.
      range(ageText("1h"), "1h"),
      range(ageText("24h"), "24h"),
      range("Today", dayStart(now)),
      range("Yesterday", yesterday, dayStart(now)),
      range(ageText("7d"), "7d"),
      range(ageText("30d"), "30d"),
    ],
    parse: (text) => {
      const age = text.trim().toLowerCase();
      if (ageMs(age) !== null) return [range(ageText(age), age)];
      if (!/^\d{4}-\d\d-\d\d$/.test(text.trim()) || Number.isNaN(Date.parse(text.trim()))) return [];
      const day = text.trim();
      const { since, until } = dayBounds(day);
      return [
        range(`On ${formatDay(day)}`, since, until),
        range(`Since ${formatDay(day)}`, since),
        range(`Before ${formatDay(day)}`, undefined, since),
      ];
    },
  };
}

export interface MenuEntry {
  readonly key: string;
  readonly label: string;
  /** The field of a choice that is listed beside choices of other fields; what a field filters by now. */
  readonly detail: string | null;
  readonly isSet: boolean;
  /** The field that the entry opens, or the change that it makes. */
  readonly target: { readonly field: string } | { readonly change: Change };
}

const MOST_ENTRIES = 50;

/** Return what the menu lists: all fields; with a text, what matches; within a field, its choices. */
export function menuEntries(fields: readonly FilterField[], opened: string | null, text: string): readonly MenuEntry[] {
  const words = text.trim().toLowerCase();
  const field = fields.find(({ label }) => label === opened);
  if (field) return choiceEntries(field, text.trim(), words, false).slice(0, MOST_ENTRIES);
  const matching = fields.filter(({ label }) => label.toLowerCase().includes(words));
  const entries = matching.map(({ label, current }) => ({
    key: label,
    label,
    detail: current,
    isSet: current !== null,
    target: { field: label },
  }));
  if (words === "") return entries;
  return [...entries, ...fields.flatMap((field) => choiceEntries(field, null, words, true))].slice(0, MOST_ENTRIES);
}

function choiceEntries(field: FilterField, typed: string | null, words: string, showsField: boolean): MenuEntry[] {
  const found = field.choices.filter(({ label }) => label.toLowerCase().includes(words));
  const parsed = typed ? field.parse(typed) : [];
  const choices = new Map(
    [...found, ...parsed].map((choice) => [JSON.stringify([choice.label, choice.change]), choice]),
  );
  return [...choices].map(([key, { label, isSet, change }]) => ({
    key: `${field.label} ${key}`,
    label,
    detail: showsField ? field.label : null,
    isSet,
    target: { change },
  }));
}
