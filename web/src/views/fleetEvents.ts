/** Fleet events as lines of text, and how many there were per minute. */
import type { EventStream, FleetEvent } from "@/api";
import { formatMoney } from "@/views/amounts";
import { isRecord, isText, oneLine } from "@/views/json";
import { formatDuration } from "@/views/time";

export const STREAMS: readonly EventStream[] = ["agent", "worker", "provider"];

export function streamOf({ type }: Pick<FleetEvent, "type">): EventStream {
  return STREAMS.find((stream) => type.startsWith(`${stream}.`)) ?? "agent";
}

/** Whether an event reports that something went wrong. */
export function isBad({ type, payload }: FleetEvent): boolean {
  const result = fieldOf(payload, type === "agent.tool_result" ? "tool" : "result");
  return (
    ["agent.error", "agent.rate_limited", "agent.terminated", "provider.unavailable"].includes(type) ||
    (type === "worker.offline" && payload.reason !== "shutdown") ||
    result.success === false
  );
}

/** Return the run that an event is about, if it is about one. */
export const runOf = ({ payload }: FleetEvent): string | null => (isText(payload.taskId) ? payload.taskId : null);

type Names = (hostId: string) => string;

/** Return what happened, on one line. `nameOf` gives the name of a host. */
export function eventText({ type, payload }: FleetEvent, nameOf: Names): string {
  const text = TEXTS[type]?.(payload, nameOf) ?? "";
  return oneLine(text, 120);
}

type Payload = Record<string, unknown>;

const TEXTS: Record<string, (payload: Payload, nameOf: Names) => string> = {
  "agent.spawned": (p) => joined(p.providerId, fieldOf(p, "process").command),
  "agent.ready": (p) => joined(p.providerId, ms(fieldOf(p, "initialization").duration)),
  "agent.thinking": (p) => textOf(fieldOf(p, "thinking").content) || "thinking",
  "agent.tool_call": (p) => [textOf(fieldOf(p, "tool").name), inputText(fieldOf(p, "tool").input)].join(" "),
  "agent.tool_result": (p) => {
    const tool = fieldOf(p, "tool");
    return joined(tool.name, tool.success === false ? "failed" : "", ms(tool.duration), tool.error);
  },
  "agent.file_change": (p) => {
    const { path, action, linesAdded, linesRemoved } = fieldOf(p, "file");
    const lines = [
      typeof linesAdded === "number" && `+${linesAdded}`,
      typeof linesRemoved === "number" && `−${linesRemoved}`,
    ];
    return [textOf(path), lines.filter(Boolean).join(" ") || textOf(action)].join(" ");
  },
  "agent.error": (p) => joined(fieldOf(p, "error").message, followUp(p)),
  "agent.rate_limited": (p) => joined(p.providerId, followUp(p)),
  "agent.completed": (p) => {
    const { duration, cost } = fieldOf(p, "metrics");
    return joined(p.providerId, ms(duration), typeof cost === "number" ? formatMoney(cost) : "");
  },
  "agent.terminated": (p) => joined(p.providerId, textOf(p.reason).replaceAll("_", " ")),
  "worker.registered": (p, nameOf) => joined(nameOf(textOf(p.workerId)) || fieldOf(p, "info").hostname),
  "worker.heartbeat": (p, nameOf) => {
    const { cpuUsage } = fieldOf(p, "metrics");
    return joined(nameOf(textOf(p.workerId)), typeof cpuUsage === "number" ? `cpu ${Math.round(cpuUsage)} %` : "");
  },
  "worker.status_changed": (p, nameOf) => joined(nameOf(textOf(p.workerId)), p.current, p.reason),
  "worker.task_assigned": (p, nameOf) => joined(nameOf(textOf(p.workerId)), fieldOf(p, "task").prompt),
  "worker.task_completed": (p, nameOf) => {
    const { success, duration } = fieldOf(p, "result");
    return joined(nameOf(textOf(p.workerId)), success === false ? "failed" : "done", ms(duration));
  },
  "worker.offline": (p) => joined(p.hostname, p.reason),
  "worker.scaling": (p) => joined(`${textOf(p.current)} to ${textOf(p.target)} hosts`, p.reason),
  "provider.available": (p) => joined(p.providerId),
  "provider.unavailable": (p) => joined(p.providerId, textOf(p.reason).replaceAll("_", " "), p.error),
  "provider.fallback": (p) =>
    joined(`${textOf(fieldOf(p, "from").providerId)} to ${textOf(fieldOf(p, "to").providerId)}`),
};

const fieldOf = (payload: Payload, name: string): Payload => (isRecord(payload[name]) ? payload[name] : {});
const textOf = (value: unknown): string => (isText(value) || typeof value === "number" ? String(value) : "");
const joined = (...parts: unknown[]) => parts.map(textOf).filter(Boolean).join(" · ");
const ms = (value: unknown) => (typeof value === "number" ? formatDuration(value) : "");

/** Return the first text of a tool's input: usually the command, path or pattern. */
function inputText(input: unknown): string {
  if (isText(input)) return input;
  return isRecord(input) ? (Object.values(input).find(isText) ?? "") : "";
}

function followUp(payload: Payload): string {
  const { type, retryCount, waitSeconds, fallbackProvider } = fieldOf(payload, "action");
  if (type === "wait") return typeof waitSeconds === "number" ? `waits ${formatDuration(waitSeconds * 1000)}` : "waits";
  if (type === "retry") return typeof retryCount === "number" ? `retry ${retryCount}` : "retries";
  return type === "fallback" ? `continues with ${textOf(fallbackProvider)}` : "";
}

export interface RateBar {
  readonly counts: Record<EventStream, number>;
  readonly total: number;
}

export interface Rate {
  readonly bars: readonly RateBar[];
  /** What the bars cover, in minutes. */
  readonly minutes: number;
  readonly highest: number;
  /** Events in the last minute. */
  readonly perMinute: number;
}

export const BARS = 60;
const MINUTE_MS = 60_000;
/** What the bars can cover, in minutes: the longest that the loaded events cover is drawn. */
const SPANS = [60, 15, 5, 1];

/** Count events for the bars. Heartbeats are not counted: there are none from before the page was opened. */
export function rateOf(events: readonly FleetEvent[], isTruncated: boolean, now: number): Rate {
  const counted = events.filter(({ type }) => type !== "worker.heartbeat");
  const oldest = counted.at(-1);
  const coveredMs = isTruncated && oldest ? now - Date.parse(oldest.timestamp) : Infinity;
  const minutes = SPANS.find((span) => span * MINUTE_MS <= coveredMs) ?? 1;
  const barMs = (minutes * MINUTE_MS) / BARS;
  // Bars begin at whole multiples of their length, so that an event stays in its bar while time passes.
  const end = (Math.floor(now / barMs) + 1) * barMs;
  const bars = Array.from({ length: BARS }, () => ({ counts: { agent: 0, worker: 0, provider: 0 }, total: 0 }));
  let perMinute = 0;
  for (const event of counted) {
    const at = Date.parse(event.timestamp);
    if (now - at < MINUTE_MS) perMinute += 1;
    const bar = bars[Math.min(BARS - 1, BARS - 1 - Math.floor((end - 1 - at) / barMs))];
    if (!bar) continue;
    bar.counts[streamOf(event)] += 1;
    bar.total += 1;
  }
  return { bars, minutes, perMinute, highest: Math.max(0, ...bars.map(({ total }) => total)) };
}
