/** The timeline as items: one for each call, step, status and error, grouped by turns. */
import type { Span, TimelineRow } from "@/api";
import { isCancellation } from "./detail";
import { baseName } from "./headline";
import { oneLine } from "./json";
import { isAgentTool, toolIcon } from "./toolIcons";

export type Ending = "completed" | "failed" | "cancelled";

interface Base {
  readonly key: number;
  /** The event that a click goes to. */
  readonly seq: number;
  /** The last event of the item: the result of a call. */
  readonly lastSeq: number;
  readonly at: string;
}

/** A tool call, a sub-run, or a command of a worker. */
export interface CallItem extends Base {
  readonly kind: "call";
  readonly name: string;
  readonly preview: string;
  readonly isSubRun: boolean;
  readonly isCommand?: boolean;
  /** Null while the call has no result. */
  readonly ending: Ending | null;
  readonly durationMs: number | null;
  readonly error: string | null;
}
/** A step, or another status of the run. */
export interface StatusItem extends Base {
  readonly kind: "status";
  readonly text: string;
  /** Whether it is a step, and how the step ended; null while it has not. */
  readonly isStep: boolean;
  readonly ending: Ending | null;
  readonly durationMs: number | null;
}
export interface ErrorItem extends Base {
  readonly kind: "error";
  readonly text: string;
  readonly isCancellation: boolean;
}
/** The agent has read the results of its calls and continues. */
export interface TurnItem extends Base {
  readonly kind: "turn";
  readonly number: number;
}
export type TimelineItem = CallItem | StatusItem | ErrorItem | TurnItem;
type Draft<T> = { -readonly [K in keyof T]: T[K] };

const NO_SPANS: ReadonlyMap<number, Span> = new Map();

/** Build the items. `reason` is why the run was cancelled; null if it was not. `spans` tell when steps and sub-runs ended. */
export function itemsOf(
  rows: readonly TimelineRow[],
  reason: string | null,
  spans: ReadonlyMap<number, Span> = NO_SPANS,
): TimelineItem[] {
  const items: TimelineItem[] = [];
  const open = new Map<number, Draft<CallItem>>();
  /** Calls of agents whose sub-run has not started yet, and the last event of such calls and sub-runs in a row. */
  const starting: number[] = [];
  let lastAgentSeq = 0;
  const cancelledBy = new Set(
    rows.flatMap(({ event_type, data, seq }) =>
      event_type === "error" && isCancellation(reason, data.message, data.code) ? [seq] : [],
    ),
  );
  let turns = 0;
  // Messages have no rows: two of them before a call, with no call open, are what the agent said after its last calls
  // and the request for the call.
  let previousSeq = 0;
  for (const row of rows) {
    const { data, seq, id, created_at: at } = row;
    const base = { key: id, seq, lastSeq: seq, at };
    switch (row.event_type) {
      case "tool_started": {
        if (open.size === 0 && (turns === 0 ? seq > previousSeq + 1 : seq > previousSeq + 2))
          items.push({ ...base, key: -id, kind: "turn", number: ++turns });
        const call: Draft<CallItem> = {
          ...base,
          kind: "call",
          name: textOf(data.tool_name) || "tool",
          preview: previewOf(textOf(data.tool_name), textOf(data.preview)),
          isSubRun: false,
          ending: null,
          durationMs: null,
          error: null,
        };
        open.set(seq, call);
        if (isAgentTool(call.name)) {
          starting.push(seq);
          lastAgentSeq = seq;
        }
        items.push(call);
        break;
      }
      case "tool_completed": {
        const call = typeof data.call_seq === "number" ? open.get(data.call_seq) : undefined;
        const end = endOf(row, reason);
        if (call) {
          open.delete(call.seq);
          if (starting.includes(call.seq)) starting.splice(starting.indexOf(call.seq), 1);
          Object.assign(call, end, { lastSeq: seq });
        } else
          items.push({
            ...base,
            kind: "call",
            name: textOf(data.tool_name) || "tool",
            preview: "",
            isSubRun: false,
            ...end,
          });
        break;
      }
      case "error":
        items.push({
          ...base,
          kind: "error",
          text: textOf(data.message) || textOf(data.code) || "error",
          isCancellation: isCancellation(reason, data.message, data.code),
        });
        break;
      case "status": {
        const span = spans.get(seq);
        // The call of an agent and its sub-run are one item. An agent may call several before the first starts.
        if (starting.length > 0 && (span ? span.kind === "run" : lastAgentSeq === seq - 1)) {
          starting.shift();
          lastAgentSeq = seq;
        } else items.push(stepItem(base, textOf(data.status) || "status", span, cancelledBy));
        break;
      }
    }
    previousSeq = seq;
  }
  return items;
}

/** Return the preview of a call as far as it fits: of a file its name, of a list of tasks nothing. */
function previewOf(name: string, preview: string): string {
  const icon = toolIcon(name);
  if (icon === "todo") return "";
  return icon === "file" || icon === "edit" ? baseName(preview) : preview;
}

function stepItem(
  base: Base,
  text: string,
  span: Span | undefined,
  cancelledBy: ReadonlySet<number>,
): CallItem | StatusItem {
  const failure = cancelledBy.has(span?.end_seq ?? 0) ? "cancelled" : "failed";
  const ending = span === undefined || span.ended_at === null ? null : span.error ? failure : "completed";
  const isStep = span?.kind === "step";
  const durationMs = span?.duration_ms ?? null;
  if (span?.kind !== "run")
    return { ...base, kind: "status", text, isStep, ending, durationMs: isStep ? durationMs : null };
  return {
    ...base,
    kind: "call",
    name: span.name || text,
    preview: "",
    isSubRun: true,
    ending,
    durationMs,
    error: null,
  };
}

function endOf({ data }: TimelineRow, reason: string | null): Pick<CallItem, "ending" | "durationMs" | "error"> {
  const hasError = data.error !== undefined && data.error !== null;
  return {
    ending: isCancellation(reason, data.error) ? "cancelled" : hasError ? "failed" : "completed",
    durationMs: typeof data.duration_ms === "number" ? data.duration_ms : null,
    error: hasError ? oneLine(textOf(data.error)) : null,
  };
}

/** Return the events of what failed, in order: calls, and errors of steps and of the run that no failed call explains. */
export function failuresOf(rows: readonly TimelineRow[], reason: string | null): number[] {
  const items = itemsOf(rows, reason);
  const callErrors = items.flatMap((item) => (item.kind === "call" && item.ending === "failed" ? [item.error] : []));
  const isExplained = (text: string) =>
    callErrors.some((error) => error === oneLine(text) || (isCut(error) && oneLine(text).startsWith(error)));
  return items
    .filter((item) =>
      item.kind === "call"
        ? item.ending === "failed"
        : item.kind === "error" && !item.isCancellation && !isExplained(item.text),
    )
    .map((item) => item.seq);
}

/** The rows of a timeline have only the beginning of the error of a call. */
const CUT_CHARS = 180;
const isCut = (error: string | null): error is string => error !== null && error.length >= CUT_CHARS;

/** Return the index of the item of an event: its own, the one it belongs to, or else the last one before. */
export function indexOfEvent(items: readonly TimelineItem[], seq: number): number {
  const own = items.findIndex((item) => item.kind !== "turn" && (item.seq === seq || item.lastSeq === seq));
  return own >= 0 ? own : items.findLastIndex((item) => item.kind !== "turn" && item.seq <= seq);
}

/** Return the longest duration of a call, which the bars of all others are compared with. */
export const longestMs = (items: readonly TimelineItem[]): number =>
  items.reduce((max, item) => (item.kind === "call" ? Math.max(max, item.durationMs ?? 0) : max), 1);

/** The types of `data` are not promised: values that are not text are shown as JSON. */
function textOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
