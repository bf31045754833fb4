import { useQueryClient } from "@tanstack/react-query";
import { useId, useRef, useState } from "react";
import { type PendingCall, type Problem, problemOf, answerCall } from "@/api";
import { Button } from "@/components/ui/Button";
import { answerOf, isAnswerable, isBrokenJson, optionsOf, questionOf, reasonOf } from "@/views/pendingCalls";
import { asText } from "@/views/json";
import { formatDateTime } from "@/views/time";
import { ApprovalBody } from "@/components/again/ApprovalBody";
import { changeDraft, deleteDraft, useDraft, useFocusHandover } from "./answerDrafts";
import { Text } from "./Text";

const draftKey = ({ run_id, call_id }: PendingCall) => `${run_id} ${call_id}`;

/** A call that a run waits for, with the form for its answer. */
export function Question({ call }: { call: PendingCall }) {
  const { send, isSending, isSent, problem } = useAnswer(call);
  const options = optionsOf(call.input);
  const { isOpen, text } = useDraft(draftKey(call));
  const isFieldOpen = isOpen || text !== "";
  const [wasJustOpened, setWasJustOpened] = useState(false);
  const question = questionOf(call);
  if (!isAnswerable(call.kind)) return <WaitReason call={call} />;
  return (
    <div className="flex flex-col gap-1.5">
      <p className="font-medium [overflow-wrap:anywhere] whitespace-pre-wrap">
        {question ??
          (call.kind === "client_tool" && options.length === 0 ? (
            <ToolRequest name={call.name} />
          ) : (
            `Result of ${call.name}`
          ))}
      </p>
      {question === null && <Text text={asText(call.input)} />}
      {call.kind === "approval" && <ApprovalBody input={call.input} />}
      {call.answered || isSent ? (
        <p role="status" className="text-xs text-text-2">
          Answered. The run continues as soon as it can.
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
              {!isFieldOpen && (
                <Button
                  variant="ghost"
                  onClick={() => {
                    changeDraft(draftKey(call), {
                      isOpen: true,
                      ...(call.kind === "approval" ? { text: "deny: " } : {}),
                    });
                    setWasJustOpened(true);
                  }}
                >
                  {call.kind === "approval" ? "Deny with a reason…" : "Another answer…"}
                </Button>
              )}
            </div>
          )}
          {(options.length === 0 || isFieldOpen) && (
            <AnswerField
              call={call}
              isText={question !== null}
              wasJustOpened={wasJustOpened}
              disabled={isSending}
              onAnswer={send}
            />
          )}
          {call.until && <p className="text-xs text-text-2">Waiting until {formatDateTime(call.until)}.</p>}
        </>
      )}
      {problem && (
        <p role="alert" className="text-xs text-failed-text">
          {problem.message} {problem.hint}
        </p>
      )}
    </div>
  );
}

/** The reason of a wait that no user can answer: the run waits for a time or for an event elsewhere. */
function WaitReason({ call }: { call: PendingCall }) {
  const { reason, details } = reasonOf(call);
  return (
    <div className="flex flex-col gap-1.5">
      <p className="[overflow-wrap:anywhere] whitespace-pre-wrap">{reason}</p>
      {details !== null && <Text text={details} />}
      {call.until && <p className="text-xs text-text-2">Waiting until {formatDateTime(call.until)}.</p>}
    </div>
  );
}

/** Explain why the user is asked for the result of a tool. */
const ToolRequest = ({ name }: { name: string }) => (
  <span className="font-normal">
    The worker called its tool <strong>{name}</strong>, which no program here executes. Type its result:
  </span>
);

interface FieldProps {
  call: PendingCall;
  isText: boolean;
  /** Whether the user has just opened the field: then it takes the focus. */
  wasJustOpened: boolean;
  disabled: boolean;
  onAnswer: (answer: unknown) => void;
}

function AnswerField({ call, isText, wasJustOpened, disabled, onAnswer }: FieldProps) {
  const key = draftKey(call);
  const text = useDraft(key).text;
  const fieldRef = useRef<HTMLTextAreaElement>(null);
  useFocusHandover(key, fieldRef);
  const [isBroken, setIsBroken] = useState(false);
  const hint = useId();
  const submit = () => {
    if (disabled || !text.trim()) return;
    if (isBrokenJson(text, call.kind)) setIsBroken(true);
    else onAnswer(answerOf(text, call.kind));
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
          autoFocus={wasJustOpened}
          aria-label="Your answer"
          aria-describedby={hint}
          rows={isText ? 1 : 3}
          value={text}
          onChange={(event) => {
            changeDraft(key, { text: event.target.value });
            setIsBroken(false);
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && (event.metaKey || event.ctrlKey || (isText && !event.shiftKey))) {
              event.preventDefault();
              submit();
            }
          }}
          className="field-sizing-content max-h-48 w-full resize-y rounded-2 border border-border-strong bg-bg px-2 py-1.5 text-13 coarse:text-16"
        />
        <p id={hint} className="text-11 text-text-2">
          {isText
            ? "Enter sends, Shift+Enter adds a new line."
            : "Ctrl+Enter sends. Valid JSON is sent as JSON, anything else as text."}
        </p>
      </div>
      <Button variant="primary" type="submit" disabled={disabled || !text.trim()} className="mb-5">
        Answer
      </Button>
      {isBroken && (
        <p role="alert" className="flex basis-full items-center gap-2 text-xs text-failed-text">
          This is not valid JSON. Send it as text?
          <Button disabled={disabled} onClick={() => onAnswer(text.trim())}>
            Send as text
          </Button>
        </p>
      )}
    </form>
  );
}

function useAnswer(call: PendingCall) {
  const queries = useQueryClient();
  const [isSending, setIsSending] = useState(false);
  const [isSent, setIsSent] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const send = (answer: unknown) => {
    setIsSending(true);
    setProblem(null);
    answerCall(call.run_id, call.call_id, answer)
      .then(() => {
        setIsSent(true);
        deleteDraft(draftKey(call));
        return queries.invalidateQueries({ queryKey: ["run"] });
      })
      .catch((error: unknown) => setProblem(problemOf(error, 0)))
      .finally(() => setIsSending(false));
  };
  return { send, isSending, isSent, problem };
}
