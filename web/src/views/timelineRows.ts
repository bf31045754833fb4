/** A row of a timeline, in words: what it says, how it looks, and where a click on it goes. */
import type { TimelineRow } from "@/api";
import { isOfCancel } from "./detail";
import { oneLine } from "./json";
import { duration } from "./time";

export type Tone = "status" | "started" | "completed" | "failed" | "error" | "cancelled";

export interface Line {
  readonly tone: Tone;
  /** The tool; null where it is not about one. */
  readonly name: string | null;
  readonly text: string;
  /** How long it took, where it has ended and that is known. */
  readonly took: string | null;
  /** The event of the log that it is about: of a tool, its call. */
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
/** The same for those who do not see. */
export const MEANINGS: Record<Tone, string> = {
  status: "",
  started: "started",
  completed: "completed",
  failed: "failed",
  error: "error",
  cancelled: "cancelled",
};

/** `cancelled` is why the run was, where it was. */
export function lineOf(row: TimelineRow, cancelled: string | null = null): Line {
  const { data, seq } = row;
  const name = text(data.tool_name) || "tool";
  switch (row.event_type) {
    case "tool_started":
      return { tone: "started", name, text: text(data.preview), took: null, seq };
    case "tool_completed": {
      const took = typeof data.duration_ms === "number" ? duration(data.duration_ms) : null;
      const failed = data.error !== undefined && data.error !== null;
      const call = typeof data.call_seq === "number" ? data.call_seq : seq;
      const tone = isOfCancel(cancelled, data.error) ? "cancelled" : failed ? "failed" : "completed";
      return { tone, name, text: oneLine(text(data.error)), took, seq: call };
    }
    case "error":
      return {
        tone: isOfCancel(cancelled, data.message, data.code) ? "cancelled" : "error",
        name: null,
        text: text(data.message) || text(data.code) || "error",
        took: null,
        seq,
      };
    case "status":
      return { tone: "status", name: null, text: text(data.status) || "status", took: null, seq };
  }
}

/** The number of the row that tells of an event: of a call, that it began; else the last row before the event. -1 where there is none. */
export function rowTelling(rows: readonly TimelineRow[], seq: number): number {
  const own = rows.findIndex((row) => row.seq === seq || lineOf(row).seq === seq);
  return own >= 0 ? own : rows.findLastIndex((row) => row.seq <= seq);
}

/** What `data` holds is not promised: whatever is no text is told as JSON. */
function text(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
