import { describe, expect, test } from "vitest";
import type { LogEvent } from "@/api";
import { artifactRange, artifactsIn, noteOf } from "@/views/jobNotes";

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

describe("the artifacts of a run", () => {
  const call = (name: string, input: unknown) => ({ type: "tool.call", payload: { name, input } }) as LogEvent;

  test("are named by the last submit_result", () =>
    expect(
      artifactsIn([
        undefined,
        call("Read", { artifacts: [{ name: "no" }] }),
        call("submit_result", { artifacts: [{ name: "a.csv" }, { name: 3 }, "b"] }),
        call("submit_result", "nonsense"),
      ]),
    ).toEqual(["a.csv"]));

  test("are among the last events", () => {
    expect(artifactRange(300)).toEqual([290, 300]);
    expect(artifactRange(4)).toEqual([1, 4]);
  });
});
