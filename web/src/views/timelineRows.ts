/** A row of a timeline as text: its words, its tone, and the event that a click goes to. */
import type { TimelineRow } from "@/api";
import { isCancellation } from "./detail";
import { oneLine } from "./json";
import { formatDuration } from "./time";

export type Tone = "status" | "started" | "completed" | "failed" | "error" | "cancelled";

export interface Line {
  readonly tone: Tone;
  /** The tool; null if the row is not about a tool. */
  readonly name: string | null;
  readonly text: string;
  /** The duration, if the call has ended and it is known. */
  readonly duration: string | null;
  /** The event of the row; for a tool result, its call. */
  readonly seq: number;
}

export const MARKS: Record<Tone, string> = {
  status: "•",
  started: "▸",
  completed: "✓",
  failed: "✗",
  error: "✗",
  cancelled: "■",
};
/** The tones for screen readers. */
export const TONE_LABELS: Record<Tone, string> = {
  status: "",
  started: "started",
  completed: "completed",
  failed: "failed",
  error: "error",
  cancelled: "cancelled",
};

/** Describe a row. `cancelReason` is why the run was cancelled; null if it was not. */
export function lineOf(row: TimelineRow, cancelReason: string | null = null): Line {
  const { data, seq } = row;
  const name = textOf(data.tool_name) || "tool";
  switch (row.event_type) {
    case "tool_started":
      return { tone: "started", name, text: textOf(data.preview), duration: null, seq };
    case "tool_completed": {
      const duration = typeof data.duration_ms === "number" ? formatDuration(data.duration_ms) : null;
      const failed = data.error !== undefined && data.error !== null;
      const call = typeof data.call_seq === "number" ? data.call_seq : seq;
      const tone = isCancellation(cancelReason, data.error) ? "cancelled" : failed ? "failed" : "completed";
      return { tone, name, text: oneLine(textOf(data.error)), duration, seq: call };
    }
    case "error":
      return {
        tone: isCancellation(cancelReason, data.message, data.code) ? "cancelled" : "error",
        name: null,
        text: textOf(data.message) || textOf(data.code) || "error",
        duration: null,
        seq,
      };
    case "status":
      return { tone: "status", name: null, text: textOf(data.status) || "status", duration: null, seq };
  }
}

/**
 * Return the index of the row of an event: for a call, the row of its start; otherwise the last row before the event.
 * -1 if there is none.
 */
export function indexOfEvent(rows: readonly TimelineRow[], seq: number): number {
  const own = rows.findIndex((row) => row.seq === seq || lineOf(row).seq === seq);
  return own >= 0 ? own : rows.findLastIndex((row) => row.seq <= seq);
}

/** The types of `data` are not promised: values that are not text are shown as JSON. */
function textOf(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
