/**
 * Checks on single events and blocks: whether the page can read them, and whether another event shows the same content.
 */
import type { Block, EventOf, LogEvent, Page } from "@/api";
import { isRecord, isText } from "./json";
import type { Message, MessageRow } from "./rowTypes";

type TextBlock = Extract<Block, { type: "text" }>;
export type Output = TextBlock & { stream: "stdout" | "stderr" };

const KNOWN: Record<LogEvent["type"], true> = {
  "run.started": true,
  "run.completed": true,
  "step.started": true,
  "step.completed": true,
  "step.call_workflow.started": true,
  "step.call_workflow.completed": true,
  "message.user": true,
  "message.assistant": true,
  "tool.call": true,
  "tool.result": true,
};

/** Whether an event has a known type and shape. A log may come from a later version, or be damaged. */
export function isReadable(event: LogEvent): boolean {
  if (!Object.hasOwn(KNOWN, event.type) || !isRecord(event.payload)) return false;
  if (event.type === "message.user" || event.type === "message.assistant") {
    return Array.isArray(event.payload.blocks) && event.payload.blocks.every(isRecord);
  }
  if (event.type === "tool.call" || event.type === "tool.result")
    return isText(event.payload.call_id) && isText(event.payload.name);
  if (event.type.startsWith("step.")) return isText(event.payload.name) && isText(event.payload.kind);
  return true;
}

export const isOutput = (block: Block): block is Output =>
  block.type === "text" && block.stream != null && typeof block.text === "string";

/** Return a command followed by its variables, one per line. */
export function commandText(command: string, variables: Record<string, string> | null | undefined): string {
  return [command, ...Object.entries(variables ?? {}).map(([name, value]) => `${name}=${value}`)].join("\n");
}

/** Whether a block has the fields of its type. Other blocks are shown as JSON. */
export function isKnownBlock(block: Block): boolean {
  switch (block.type) {
    case "text":
      return typeof block.text === "string";
    case "thinking":
      return typeof block.thinking === "string";
    case "command":
      return typeof block.command === "string";
    case "stream":
      return typeof block.chunk === "string";
    case "tool_use":
      return typeof block.tool_name === "string";
    case "tool_result":
      return "tool_content" in block;
    default:
      return false;
  }
}

export function messageKindOf(blocks: readonly Block[]): MessageRow["kind"] {
  if (blocks.length === 0) return "note";
  if (blocks.every((block) => block.type === "stream" && block.unparsed)) return "unparsed";
  return blocks.every((block) => !isKnownBlock(block)) ? "unknown" : "message";
}

/**
 * Whether an event of its own shows a tool use or result. A tool use without a call is shown once the agent has
 * continued without it.
 */
export function hasOwnEvent(block: Block, message: Message, page: Page, index = 0): boolean {
  if (block.type === "tool_result")
    return page.events.some(
      (event) => event.type === "tool.result" && isReadable(event) && event.payload.call_id === block.tool_id,
    );
  if (block.type !== "tool_use") return false;
  if (
    page.events.some(
      (event) => event.type === "tool.call" && isReadable(event) && event.payload.call_id === block.tool_id,
    )
  )
    return true;
  return !page.events.slice(index + 1).some((later) => continuesAfter(later, message));
}

function continuesAfter(later: LogEvent, message: Message): boolean {
  if (later.path !== message.path) return false;
  if (later.type === "step.completed") return true;
  if (later.type !== "message.assistant" || !isReadable(later) || message.type !== "message.assistant") return false;
  return !later.payload.note && later.payload.message_id !== message.payload.message_id;
}

type StepEvent = EventOf<
  "step.started" | "step.completed" | "step.call_workflow.started" | "step.call_workflow.completed"
>;

/** Return the key that joins the start and the end of a step or sub-run. */
export function stepKeyOf(event: StepEvent): string {
  return event.child_run_id ?? `${event.path}#${event.iteration}#${event.payload.try}`;
}
