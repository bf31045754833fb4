/** Notes that a job reports about itself, as the tools of workers and plugins have them: text instead of JSON. */
import { isRecord, isText, oneLine } from "./json";

export interface JobNote {
  readonly label: string;
  /** One line that says everything important. */
  readonly headline: string;
  readonly paragraphs: readonly { readonly label: string | null; readonly text: string }[];
}

/** Return the note in a tool call; null if the call is no note, or has other arguments. */
export function noteOf(name: string, input: unknown): JobNote | null {
  if (!isRecord(input)) return null;
  const { summary, question, decision, reasoning, text } = input;
  switch (name) {
    case "update_summary":
      return isText(summary) ? textNote("Summary", summary) : null;
    case "log_question":
      return isText(question) && Object.keys(input).length === 1 ? textNote("Question", question) : null;
    case "record_decision":
      return isText(question) && isText(decision) && isText(reasoning)
        ? decisionNote(question, decision, reasoning)
        : null;
    case "submit_result": {
      const names = artifactNames(input);
      return text === undefined && names.length > 0 ? textNote("Artifacts", names.join("\n"), names.join(", ")) : null;
    }
    default:
      return null;
  }
}

const textNote = (label: string, text: string, headline = text): JobNote => ({
  label,
  headline: oneLine(headline),
  paragraphs: [{ label: null, text }],
});

const decisionNote = (question: string, decision: string, reasoning: string): JobNote => ({
  label: "Decision",
  headline: oneLine(`${question} → ${decision}`),
  paragraphs: [
    { label: "Question", text: question },
    { label: "Decision", text: decision },
    { label: "Reasoning", text: reasoning },
  ],
});

function artifactNames(input: Record<string, unknown>): string[] {
  const artifacts = input["artifacts"];
  if (!Array.isArray(artifacts)) return [];
  return artifacts.flatMap((item) => (isRecord(item) && isText(item["name"]) ? [item["name"]] : []));
}
