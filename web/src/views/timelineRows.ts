/** A row of a timeline, in words: what it says, how it looks, and where a click on it goes. */
import type { TimelineRow } from "@/api";
import { oneLine } from "./json";
import { duration } from "./time";

export type Tone = "status" | "started" | "completed" | "failed" | "error";

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

export const MARKS: Record<Tone, string> = { status: "•", started: "▸", completed: "✓", failed: "✗", error: "✗" };
/** The same for those who do not see. */
export const MEANINGS: Record<Tone, string> = {
  status: "",
  started: "started",
  completed: "completed",
  failed: "failed",
  error: "error",
};

export function lineOf(row: TimelineRow): Line {
  const { data, seq } = row;
  const name = text(data.tool_name) || "tool";
  switch (row.event_type) {
    case "tool_started":
      return { tone: "started", name, text: text(data.preview), took: null, seq };
    case "tool_completed": {
      const took = typeof data.duration_ms === "number" ? duration(data.duration_ms) : null;
      const failed = data.error !== undefined && data.error !== null;
      const call = typeof data.call_seq === "number" ? data.call_seq : seq;
      return { tone: failed ? "failed" : "completed", name, text: oneLine(text(data.error)), took, seq: call };
    }
    case "error":
      return { tone: "error", name: null, text: text(data.message) || text(data.code) || "error", took: null, seq };
    case "status":
      return { tone: "status", name: null, text: text(data.status) || "status", took: null, seq };
  }
}

/** What `data` holds is not promised: whatever is no text is told as JSON. */
function text(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}
