/** Texts for values of the log. */
import type { Block, Note } from "@/api";
import { formatDateTime } from "@/views/time";

/** Say who observed the content. */
export function fidelityLabel(fidelity: Block["fidelity"] | undefined): string {
  return fidelity === "agent_emitted" ? "Reported by the agent" : "Observed by Shopfloor";
}

/** Describe a note of the agent's program. */
export function noteText(note: Note): string {
  switch (note.kind) {
    case "ready":
      return note.ready ? readyText(note.ready) : (note.message ?? "Ready");
    case "retry": {
      const failure = note.try
        ? `Attempt ${note.try}${note.tries ? ` of ${note.tries}` : ""} failed`
        : "Attempt failed";
      const after = note.retry_after ? `; next attempt in ${note.retry_after.toFixed(1)} s` : "";
      return `${failure}${note.message ? `: ${note.message}` : ""}${note.status ? ` (HTTP ${note.status})` : ""}${after}`;
    }
    case "limit":
      return limitText(note);
    case "denied":
      return `Not allowed${note.message ? `: ${note.message}` : ""}`;
    case "left":
      return note.message ?? "Paused here, continued later";
    default:
      return note.message ?? note.code ?? note.kind;
  }
}

function readyText(ready: Note["ready"]): string {
  const tools = ready?.tools?.length;
  const context = ready?.context_tokens && `context of ${ready.context_tokens.toLocaleString("en-US")} tokens`;
  const version = ready?.version && `version ${ready.version}`;
  const parts = [ready?.model, version, tools && `${tools} tools`, context, ready?.cwd];
  return ["Ready", ...parts.filter(Boolean)].join(" · ");
}

function limitText({ limit, message }: Note): string {
  if (!limit) return message ?? "Provider limit";
  const used =
    limit.current == null
      ? ""
      : ` ${limit.max ? `${limit.current} of ${limit.max}` : `${Math.round(limit.current * 100)}%`} used`;
  const window = limit.window ? ` (${limit.window.replaceAll("_", " ")})` : "";
  const heading = limit.status === "rejected" ? "Limit reached" : limit.status === "warning" ? "Near a limit" : "Limit";
  return `${heading}${window}:${used || ` ${limit.kind ?? ""}`}${limit.reset_at ? `, until ${formatDateTime(limit.reset_at)}` : ""}`;
}

const OUTCOMES: Readonly<Partial<Record<string, string>>> = {
  completed: "Done",
  failed: "Failed",
  cancelled: "Cancelled",
};
export const outcomeLabel = (status: string) => OUTCOMES[status] ?? status;

/** Whether a run is a single step: a command, or a task for an agent. */
export const isSingleStep = (run: { kind: string }) => run.kind === "agent" || run.kind === "command";
