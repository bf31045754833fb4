import { useId } from "react";
import type { RunDetail } from "@/api";
import { buttonClass } from "@/components/ui/Button";

/** The questions and decisions that the worker recorded: how many, and a list that opens over the page. */
export function Notes({ run }: { run: RunDetail }) {
  const id = useId();
  const { questions, decisions } = run;
  if (questions.length + decisions.length === 0) return null;
  const counts = [count(decisions.length, "decision"), count(questions.length, "question")].filter(Boolean);
  return (
    <>
      <button
        type="button"
        popoverTarget={id}
        title="Decisions and questions of the worker"
        className={buttonClass("ghost", "notes-anchor h-6! shrink-0 px-1")}
      >
        {counts.join(", ")}
      </button>
      <div
        id={id}
        popover="auto"
        role="dialog"
        aria-label="Notes of the worker"
        className="anchored-notes w-[min(28rem,calc(100vw-2rem))] rounded-3 border border-border bg-bg-pop p-3 text-text shadow-(--shadow-2)"
      >
        <ul aria-label="Notes" tabIndex={0} className="thin-scroll max-h-[30dvh] space-y-1.5 overflow-y-auto">
          {decisions.map(({ question, decision, reasoning }, index) => (
            <li key={`decision-${index}`} className="break-words">
              <p className="text-text-2">{question}</p>
              <p>{decision}</p>
              <p className="text-xs text-text-3">{reasoning}</p>
            </li>
          ))}
          {questions.map((question, index) => (
            <li key={`question-${index}`} className="break-words">
              {question}
            </li>
          ))}
        </ul>
      </div>
    </>
  );
}

const count = (number: number, noun: string) => (number === 0 ? "" : `${number} ${noun}${number === 1 ? "" : "s"}`);
