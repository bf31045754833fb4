import type { RunDetail } from "@/api";

/** The questions and decisions that the worker recorded, folded. */
export function Notes({ run }: { run: RunDetail }) {
  const { questions, decisions } = run;
  if (questions.length + decisions.length === 0) return null;
  const counts = [count(decisions.length, "decision"), count(questions.length, "question")].filter(Boolean);
  return (
    <details className="shrink-0 border-t border-border px-5 py-1.5">
      <summary className="cursor-pointer text-xs font-semibold text-text-2">{counts.join(", ")}</summary>
      <ul aria-label="Notes" tabIndex={0} className="max-h-[30dvh] space-y-1.5 overflow-y-auto pt-1.5">
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
    </details>
  );
}

const count = (number: number, noun: string) => (number === 0 ? "" : `${number} ${noun}${number === 1 ? "" : "s"}`);
