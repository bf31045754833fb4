import { useQueryClient } from "@tanstack/react-query";
import { useId, useRef, useState } from "react";
import { type PendingCall, type Problem, problemOf, answerCall } from "@/api";
import { Button } from "@/components/ui/Button";
import { TimeIn } from "@/components/ui/Time";
import { useCanAct } from "@/useCanAct";
import {
  answerOf,
  isAnswerable,
  isBrokenJson,
  optionLabel,
  optionsOf,
  questionOf,
  reasonOf,
} from "@/views/pendingCalls";
import { asText } from "@/views/json";
import { withoutBold } from "@/views/markdown";
import type { Zone } from "@/views/shortcutKeys";
import { formatDateTime } from "@/views/time";
import { Message } from "@/components/ui/Message";
import { ApprovalBody } from "@/components/again/ApprovalBody";
import { NumberKey } from "@/components/needsyou/NumberKey";
import { MAX_KEYS, useNumberKeys } from "@/components/needsyou/useNumberKeys";
import { changeDraft, deleteDraft, useDraft, useFocusHandover } from "./answerDrafts";
import { isEnter } from "@/components/ui/isEnter";
import { Text } from "./Text";

const draftKey = ({ run_id, call_id }: PendingCall) => `${run_id} ${call_id}`;

interface QuestionProps {
  call: PendingCall;
  /** Where the keys 1 to 9 choose an option; without it they do not. */
  keyZone?: Zone | undefined;
  /** Whether the field for the answer is folded until the user opens it. */
  isFieldFolded?: boolean;
}

/** A call that a run waits for, with the form for its answer. */
export function Question({ call, keyZone, isFieldFolded = false }: QuestionProps) {
  const { send, isSending, isSent, problem } = useAnswer(call);
  const canAct = useCanAct();
  const options = optionsOf(call.input);
  const isOpenCall = canAct && isAnswerable(call.kind) && !call.answered && !isSent;
  const boxRef = useRef<HTMLDivElement>(null);
  const hasActiveKeys = useNumberKeys(isOpenCall && !isSending ? keyZone : undefined, options.length, boxRef, (n) =>
    send(options[n]),
  );
  const hasKeys = isOpenCall && keyZone !== undefined;
  const { isOpen, text } = useDraft(draftKey(call));
  const isFieldOpen = isOpen || text !== "";
  const [wasJustOpened, setWasJustOpened] = useState(false);
  const question = questionOf(call);
  if (!isAnswerable(call.kind)) return <WaitReason call={call} />;
  return (
    <div ref={boxRef} className="flex flex-col gap-1.5">
      <p className="font-medium [overflow-wrap:anywhere] whitespace-pre-wrap">
        {(question !== null && <Message text={withoutBold(question)} />) ||
          (call.kind === "client_tool" && options.length === 0 ? (
            <ToolRequest name={call.name} canAct={canAct} />
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
          {canAct && (options.length > 0 || isFieldFolded) && (
            <div className="flex flex-wrap gap-1.5">
              {options.map((option, n) => (
                <Button
                  key={n}
                  disabled={isSending}
                  onClick={() => send(option)}
                  variant={hasKeys && n === 0 ? "primary" : isDenial(call, option) ? "danger" : "plain"}
                  {...(hasActiveKeys && n < MAX_KEYS && { "aria-keyshortcuts": String(n + 1) })}
                  className="max-w-full"
                >
                  <span className="truncate">{optionLabel(call.kind, asText(option))}</span>
                  {hasKeys && n < MAX_KEYS && <NumberKey index={n} isShown={hasActiveKeys} />}
                </Button>
              ))}
              {!isFieldOpen && (
                <Button
                  variant={options.length > 0 ? "ghost" : "plain"}
                  onClick={() => {
                    changeDraft(draftKey(call), {
                      isOpen: true,
                      ...(call.kind === "approval" ? { text: "deny: " } : {}),
                    });
                    setWasJustOpened(true);
                  }}
                >
                  {call.kind === "approval"
                    ? "Deny with a reason…"
                    : options.length > 0
                      ? "Another answer…"
                      : "Answer…"}
                </Button>
              )}
            </div>
          )}
          {canAct && ((options.length === 0 && !isFieldFolded) || isFieldOpen) && (
            <AnswerField
              call={call}
              isText={question !== null}
              wasJustOpened={wasJustOpened}
              disabled={isSending}
              onAnswer={send}
            />
          )}
          {call.until && (
            <p className="text-11 text-text-2">
              {call.kind === "approval" ? "Denied automatically" : "The wait ends"} <TimeIn at={call.until} />.
            </p>
          )}
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

const isDenial = ({ kind }: PendingCall, option: unknown) => kind === "approval" && option === "deny";

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
const ToolRequest = ({ name, canAct }: { name: string; canAct: boolean }) => (
  <span className="font-normal">
    The worker called its tool <strong>{name}</strong>, which no program here executes. {canAct && "Type its result:"}
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
            if (isEnter(event) && (event.metaKey || event.ctrlKey || (isText && !event.shiftKey))) {
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
        void queries.invalidateQueries({ queryKey: ["waiting"] });
        return queries.invalidateQueries({ queryKey: ["run"] });
      })
      .catch((error: unknown) => setProblem(problemOf(error, 0)))
      .finally(() => setIsSending(false));
  };
  return { send, isSending, isSent, problem };
}
