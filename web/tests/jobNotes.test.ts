import { describe, expect, test } from "vitest";
import { noteOf } from "@/views/jobNotes";

const DECISION = { question: "Twice?", decision: "No,\nonce.", reasoning: "Style guides." };

describe("a note of a job", () => {
  test.each([
    ["update_summary", { summary: "Reading" }, "Summary", "Reading"],
    ["log_question", { question: "Once or twice?" }, "Question", "Once or twice?"],
    ["record_decision", DECISION, "Decision", "Twice? → No, once."],
    ["submit_result", { artifacts: [{ name: "a.csv" }, { name: "b.md" }] }, "Artifacts", "a.csv, b.md"],
  ])("%s", (name, input, label, headline) => expect(noteOf(name, input)).toMatchObject({ label, headline }));

  test("a decision has its question and reasoning", () =>
    expect(noteOf("record_decision", DECISION)?.paragraphs).toEqual([
      { label: "Question", text: "Twice?" },
      { label: "Decision", text: "No,\nonce." },
      { label: "Reasoning", text: "Style guides." },
    ]));

  test.each([
    ["Read", { summary: "x" }],
    ["update_summary", null],
    ["update_summary", { summary: 3 }],
    ["log_question", { question: "Which?", options: ["a", "b"] }],
    ["record_decision", { decision: "yes" }],
    ["submit_result", { text: "the answer", artifacts: [{ name: "a.csv" }] }],
    ["submit_result", { artifacts: [] }],
  ])("%s with other arguments is an ordinary call: %j", (name, input) => expect(noteOf(name, input)).toBeNull());
});
