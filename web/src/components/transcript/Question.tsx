import { useQueryClient } from "@tanstack/react-query";
import { useId, useRef, useState } from "react";
import { type Awaited, type Problem, problemOf, reply } from "@/api";
import { Button } from "@/components/ui/Button";
import { answerOf, isAnswerable, isBrokenJson, optionsOf, questionOf, reasonOf } from "@/views/pendingCalls";
import { asText } from "@/views/json";
import { exact } from "@/views/time";
import { changeDraft, deleteDraft, useDraft, useFocusHandover } from "./answerDrafts";
import { Text } from "./Text";

const draftKey = ({ run_id, call_id }: Awaited) => `${run_id} ${call_id}`;

/** A call that a run waits for, with the form for its answer. */
export function Question({ asked }: { asked: Awaited }) {
  const { send, isSending, isSent, problem } = useAnswer(asked);
  const options = optionsOf(asked.input);
  const { isOpen, text } = useDraft(draftKey(asked));
  const isOther = isOpen || text !== "";
  const [isOpened, setIsOpened] = useState(false);
  const question = questionOf(asked);
  if (!isAnswerable(asked.kind)) return <Reason asked={asked} />;
  return (
    <div className="flex flex-col gap-1.5">
      <p className="font-medium [overflow-wrap:anywhere] whitespace-pre-wrap">
        {question ??
          (asked.kind === "client_tool" && options.length === 0 ? (
            <ToolWanted name={asked.name} />
          ) : (
            `The result of ${asked.name}`
          ))}
      </p>
      {question === null && <Text text={asText(asked.input)} />}
      {asked.answered || isSent ? (
        <p role="status" className="text-xs text-ink-dull">
          Answered. The run takes it up as soon as it can.
        </p>
      ) : (
        <>
          {options.length > 0 && (
            <div className="flex flex-wrap gap-1.5">
              {options.map((option, n) => (
                <Button key={n} disabled={isSending} onClick={() => send(option)}>
                  {asText(option)}
                </Button>
              ))}
              {!isOther && (
                <Button
                  look="bare"
                  onClick={() => {
                    changeDraft(draftKey(asked), { isOpen: true });
                    setIsOpened(true);
                  }}
                >
                  Another answer…
                </Button>
              )}
            </div>
          )}
          {(options.length === 0 || isOther) && (
            <Field asked={asked} isText={question !== null} isOpened={isOpened} disabled={isSending} onAnswer={send} />
          )}
          {asked.until && <p className="text-xs text-ink-faint">It waits until {exact(asked.until)}.</p>}
        </>
      )}
      {problem && (
        <p role="alert" className="text-xs text-failed">
          {problem.message} {problem.hint}
        </p>
      )}
    </div>
  );
}

/** The reason of a wait that nobody can answer: the run waits for a time or for an event elsewhere. */
function Reason({ asked }: { asked: Awaited }) {
  const { reason, details } = reasonOf(asked);
  return (
    <div className="flex flex-col gap-1.5">
      <p className="[overflow-wrap:anywhere] whitespace-pre-wrap">{reason}</p>
      {details !== null && <Text text={details} />}
      {asked.until && <p className="text-xs text-ink-dull">It waits until {exact(asked.until)}.</p>}
    </div>
  );
}

/** Explain why the user is asked for the result of a tool. */
const ToolWanted = ({ name }: { name: string }) => (
  <span className="font-normal">
    The worker called its tool <strong>{name}</strong>, and no program here executes it. Type what it should give back:
  </span>
);

interface FieldProps {
  asked: Awaited;
  isText: boolean;
  /** Whether the user has just opened the field: then it takes the focus. */
  isOpened: boolean;
  disabled: boolean;
  onAnswer: (answer: unknown) => void;
}

function Field({ asked, isText, isOpened, disabled, onAnswer }: FieldProps) {
  const key = draftKey(asked);
  const typed = useDraft(key).text;
  const fieldRef = useRef<HTMLTextAreaElement>(null);
  useFocusHandover(key, fieldRef);
  const [doubts, setDoubts] = useState(false);
  const hint = useId();
  const submit = () => {
    if (disabled || !typed.trim()) return;
    if (isBrokenJson(typed, asked.kind)) setDoubts(true);
    else onAnswer(answerOf(typed, asked.kind));
  };
  return (
    <form
      className="flex flex-wrap items-end gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      <div className="min-w-0 flex-1">
        <textarea
          ref={fieldRef}
          autoFocus={isOpened}
          aria-label="Your answer"
          aria-describedby={hint}
          rows={isText ? 1 : 3}
          value={typed}
          onChange={(event) => {
            changeDraft(key, { text: event.target.value });
            setDoubts(false);
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.metaKey || event.ctrlKey || (isText && !event.shiftKey))) {
              event.preventDefault();
              submit();
            }
          }}
          className="field-sizing-content max-h-48 w-full resize-y rounded border border-line bg-app px-2 py-1 font-mono text-xs"
        />
        <p id={hint} className="text-[11px] text-ink-faint">
          {isText
            ? "Enter sends, Shift and Enter begin a new line."
            : "Ctrl+Enter sends. Valid JSON is sent as JSON, anything else as text."}
        </p>
      </div>
      <Button look="primary" type="submit" disabled={disabled || !typed.trim()} className="mb-5">
        Answer
      </Button>
      {doubts && (
        <p role="alert" className="flex basis-full items-center gap-2 text-xs text-failed">
          This is not JSON. Send it as text?
          <Button disabled={disabled} onClick={() => onAnswer(typed.trim())}>
            Send as text
          </Button>
        </p>
      )}
    </form>
  );
}

function useAnswer(asked: Awaited) {
  const queries = useQueryClient();
  const [isSending, setIsSending] = useState(false);
  const [isSent, setIsSent] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const send = (answer: unknown) => {
    setIsSending(true);
    setProblem(null);
    reply(asked.run_id, asked.call_id, answer)
      .then(() => {
        setIsSent(true);
        deleteDraft(draftKey(asked));
        return queries.invalidateQueries({ queryKey: ["run"] });
      })
      .catch((error: unknown) => setProblem(problemOf(error, 0)))
      .finally(() => setIsSending(false));
  };
  return { send, isSending, isSent, problem };
}
