/** Texts for values of the log. */
import type { Block, Note } from "@/api";
import { exact } from "@/views/time";

/** Say who observed the content. */
export function vouched(fidelity: Block["fidelity"] | undefined): string {
  return fidelity === "agent_emitted" ? "As the agent tells it" : "Seen by Shopfloor";
}

/** Describe a note of the agent's program. */
export function noteWords(note: Note): string {
  switch (note.kind) {
    case "ready":
      return readyWords(note.ready);
    case "retry": {
      const which = note.try ? `Try ${note.try}${note.tries ? ` of ${note.tries}` : ""} failed` : "It failed";
      const after = note.retry_after ? `; the next in ${note.retry_after.toFixed(1)} s` : "";
      return `${which}${note.message ? `: ${note.message}` : ""}${note.status ? ` (HTTP ${note.status})` : ""}${after}`;
    }
    case "limit":
      return limitWords(note);
    case "denied":
      return `Not allowed${note.message ? `: ${note.message}` : ""}`;
    case "left":
      return note.message ?? "Left here, and gone on with later";
    default:
      return note.message ?? note.code ?? note.kind;
  }
}

function readyWords(ready: Note["ready"]): string {
  const tools = ready?.tools?.length;
  const said = [ready?.model, ready?.version && `version ${ready.version}`, tools && `${tools} tools`, ready?.cwd];
  return ["Ready", ...said.filter(Boolean)].join(" · ");
}

function limitWords({ limit, message }: Note): string {
  if (!limit) return message ?? "A limit of the provider";
  const used =
    limit.current == null
      ? ""
      : ` ${limit.max ? `${limit.current} of ${limit.max}` : `${Math.round(limit.current * 100)}%`} used`;
  const window = limit.window ? ` (${limit.window.replaceAll("_", " ")})` : "";
  const what = limit.status === "rejected" ? "Limit reached" : limit.status === "warning" ? "Near a limit" : "Limit";
  return `${what}${window}:${used || ` ${limit.kind ?? ""}`}${limit.reset_at ? `, until ${exact(limit.reset_at)}` : ""}`;
}

const OUTCOMES: Readonly<Partial<Record<string, string>>> = {
  completed: "Done",
  failed: "Failed",
  cancelled: "Cancelled",
};
export const outcomeWord = (status: string) => OUTCOMES[status] ?? status;

/** Whether a run is a single step: a command, or a task for an agent. */
export const isBare = (run: { kind: string }) => run.kind === "agent" || run.kind === "command";
