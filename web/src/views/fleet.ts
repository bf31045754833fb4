/** What the fleet page shows of hosts, providers and the queue. */
import type { Provider, Host, HostRun, ProviderLimit, QueueGroup } from "@/api";
import { formatCount } from "@/views/amounts";
import { formatShort } from "@/views/time";

/** A tone gives a text its color; the words never depend on it. */
export type Tone = "plain" | "quiet" | "running" | "failed" | "done" | "waiting";

export interface Toned {
  readonly text: string;
  readonly tone: Tone;
}

/** Return the state of a host: that it is silent matters more than what it did before. */
export function hostState(host: Host, now: number): Toned {
  if (host.status !== "offline" && !host.responsive) return { text: "no heartbeat", tone: "failed" };
  if (host.status !== "draining") return { text: host.status, tone: host.status === "busy" ? "running" : "quiet" };
  const left = host.drain_deadline === null ? 0 : Date.parse(host.drain_deadline) - now;
  return { text: left > 0 ? `draining, ${formatShort(left)} left` : "draining", tone: "running" };
}

/** Whether the host accepts no more runs although it is there. */
export const isDraining = (host: Host) => host.status === "draining";

/** Return where a host is, its labels and its size: `docker · gpu=yes · 8 cores`. */
export function hostFacts({ location, resources, labels }: Host): string {
  const cores = `${resources.cpu_cores} ${resources.cpu_cores === 1 ? "core" : "cores"}`;
  return [location.type, ...Object.entries(labels).map(([key, value]) => `${key}=${value}`), cores].join(" · ");
}

/** As many squares as fit into two lines. If there are more slots, the last squares make room for their number. */
const DRAWN_SLOTS = 20;
const DRAWN_SLOTS_WITH_NUMBER = 17;

export interface Slots {
  /** The runs in the drawn slots, then null for free ones. */
  readonly squares: readonly (HostRun | null)[];
  readonly hidden: number;
}

/** Return one square per slot, with the run in it. A run that waits may have given its slot back. */
export function slotsOf({ slots, slots_used: used, runs, status }: Host): Slots {
  if (status === "offline") return { squares: [], hidden: 0 };
  const inSlots: (HostRun | null)[] = [...runs].sort((a, b) => order(a) - order(b)).slice(0, used);
  const squares = [...inSlots, ...Array<null>(Math.max(0, slots - inSlots.length)).fill(null)];
  const drawn = squares.length > DRAWN_SLOTS ? DRAWN_SLOTS_WITH_NUMBER : squares.length;
  return { squares: squares.slice(0, drawn), hidden: squares.length - drawn };
}

const order = ({ status }: HostRun) => (status === "running" ? 0 : 1);

/** Return what the slots of a host are used for: `3 running, 1 waiting`. */
export function slotsText(host: Host): string {
  const running = host.runs.filter(({ status }) => status === "running").length;
  const waiting = host.runs.length - running;
  const parts = [running && `${running} running`, waiting && `${waiting} waiting`].filter(Boolean);
  if (parts.length === 0) return isDraining(host) ? "takes no more" : "free";
  if (isDraining(host)) parts.push("takes no more");
  return parts.join(", ");
}

export const countText = (count: number, one: string, many = `${one}s`) =>
  `${count.toLocaleString("en")} ${count === 1 ? one : many}`;

export interface FleetTiles {
  readonly hosts: number;
  readonly hostsText: string;
  readonly slots: number;
  readonly used: number;
  /** Slots of runs that wait. */
  readonly waiting: number;
}

/** Return the figures of all hosts. A host that is gone is not counted. */
export function fleetTiles(hosts: readonly Host[]): FleetTiles {
  const present = hosts.filter(({ status }) => status !== "offline");
  const silent = present.filter(({ responsive }) => !responsive).length;
  const draining = present.filter((host) => host.responsive && isDraining(host)).length;
  const parts = [
    `${present.length - silent - draining} up`,
    draining ? `${draining} draining` : "",
    silent ? `${silent} silent` : "",
  ];
  const sumOf = (count: (host: Host) => number) => present.reduce((sum, host) => sum + count(host), 0);
  const running = (host: Host) => host.runs.filter(({ status }) => status === "running").length;
  return {
    hosts: present.length,
    hostsText: parts.filter(Boolean).join(" · "),
    slots: sumOf(({ slots }) => slots),
    used: sumOf((host) => host.slots_used),
    waiting: sumOf((host) => Math.max(0, host.slots_used - running(host))),
  };
}

/** Hosts that are there first, by name; hosts that are gone last. */
export const sortedHosts = (hosts: readonly Host[]): readonly Host[] =>
  [...hosts].sort(
    (a, b) =>
      Number(a.status === "offline") - Number(b.status === "offline") ||
      a.hostname.localeCompare(b.hostname) ||
      a.id.localeCompare(b.id),
  );

/** Return the name of a host; hosts with the same name get the end of their id. */
export const hostName = (host: Host, hosts: readonly Host[]): string =>
  hosts.filter(({ hostname }) => hostname === host.hostname).length > 1
    ? `${host.hostname} ${host.id.slice(-4)}`
    : host.hostname;

/** From here on a meter warns. */
export const HIGH_PERCENT = 80;

const PROVIDER_TONES: Record<Provider["status"], Tone> = {
  available: "done",
  rate_limited: "running",
  unavailable: "failed",
  disabled: "quiet",
};

export interface ProviderState extends Toned {
  /** Until when it is not available, if that is known. */
  readonly until: string | null;
  readonly detail: string | null;
}

/** Return the state of a provider in words, with the reason. A provider that is not set up is no error. */
export function providerState(provider: Provider): ProviderState {
  const { status, reason, error, estimated_recovery: until } = provider;
  const tone = isSetUp(provider) || status === "disabled" ? PROVIDER_TONES[status] : "quiet";
  if (status === "available") return { text: "available", tone, until: null, detail: null };
  if (status === "rate_limited") return { text: "limit met", tone, until, detail: error };
  if (status === "disabled")
    return { text: reason === "maintenance" ? "off for maintenance" : "off", tone, until, detail: error };
  return { text: isSetUp(provider) ? "unavailable" : "not set up", tone, until, detail: error };
}

/** Whether the provider is set up: it is installed, or has credentials. */
export const isSetUp = ({ kind, path, login }: Provider) => login != null || (kind === "agent" && path != null);

/** Providers that are set up first, in the server's order. */
export const sortedProviders = (providers: readonly Provider[]): readonly Provider[] =>
  [...providers].sort((a, b) => rank(a) - rank(b));

const rank = (provider: Provider) => (isSetUp(provider) ? 0 : provider.status === "disabled" ? 1 : 2);

export interface LimitView {
  readonly name: string;
  /** From 0 to 100; null if the provider does not tell. */
  readonly percent: number | null;
  readonly text: string;
  readonly tone: Tone;
}

/** Return how much of a limit is used, and when it is reset. A maximum of 1 means that only the fraction is known. */
export function limitView(limit: ProviderLimit, now: number, clock: (at: string) => string): LimitView {
  const { current, max, reset_at: resetAt, status } = limit;
  const name = limit.name ?? (limit.kind === "tokens" ? "Tokens" : "Requests");
  // What was used before the reset says nothing about now.
  if (resetAt !== null && Date.parse(resetAt) <= now)
    return { name, percent: null, text: `reset ${clock(resetAt)}`, tone: "quiet" };
  const fraction = current === null || !max ? null : Math.max(0, current / max);
  const percent = fraction === null ? null : Math.min(100, Math.round(fraction * 100));
  const isMet = status === "rejected" || (percent === null ? status === null : percent >= 100);
  const used = isMet
    ? `met ${clock(limit.met_at)}`
    : percent === null
      ? status === "warning"
        ? "close to the limit"
        : "within the limit"
      : max === 1
        ? `${percent} %`
        : `${amount(current ?? 0)} of ${amount(max ?? 0)}`;
  const reset = resetAt === null ? "" : ` · resets in ${formatShort(Date.parse(resetAt) - now)}`;
  const isHigh = status === "warning" || (percent ?? 0) >= HIGH_PERCENT;
  return { name, percent, text: used + reset, tone: isMet ? "failed" : isHigh ? "running" : "quiet" };
}

const amount = (value: number) => (value < 10_000 ? Math.round(value).toLocaleString("en") : formatCount(value));

/** Return a countdown: `1:12:09`, `4:05`, `0:09`; `0:00` once the time has come. */
export function countdown(until: string, now: number): string {
  const seconds = Math.max(0, Math.ceil((Date.parse(until) - now) / 1000));
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  const pad = (number: number) => String(number).padStart(2, "0");
  return hours ? `${hours}:${pad(minutes)}:${pad(rest)}` : `${minutes}:${pad(rest)}`;
}

const REASON_TONES: Record<QueueGroup["reason"], Tone> = {
  slots: "quiet",
  caller: "quiet",
  provider: "running",
  disabled: "running",
  labels: "failed",
  definition: "failed",
  other: "quiet",
};

export const reasonTone = ({ reason }: QueueGroup): Tone => REASON_TONES[reason];

/** Return the message of a group as a heading, with a capital letter unless it begins with the name of a provider. */
export const reasonTitle = ({ reason, message }: QueueGroup) =>
  reason === "provider" ? message : message.slice(0, 1).toUpperCase() + message.slice(1);

/** Return the label that no host has, from the message of a group; null if the group waits for something else. */
export function missingLabel({ reason, message }: QueueGroup): string | null {
  return reason === "labels" ? (/\b[\w.-]+=[\w.-]+/.exec(message)?.[0] ?? null) : null;
}

export const priorityText = (priority: number): string | null =>
  priority === 0 ? null : priority > 0 ? `+${priority}` : `−${Math.abs(priority)}`;
