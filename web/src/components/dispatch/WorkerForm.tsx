import { useMutation } from "@tanstack/react-query";
import { type RefObject, type SubmitEvent, useMemo, useRef, useState } from "react";
import { dispatch, type RunRequest, type Worker } from "@/api";
import { SchemaField } from "@/components/dispatch/SchemaField";
import { FormFooter } from "@/components/dispatch/FormFooter";
import { TextField } from "@/components/dispatch/LabeledField";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { readForm, type TypedTexts } from "@/views/formValues";
import { type Field, fieldsOf } from "@/views/schemaForm";

/** Values that the user has typed. */
export interface Draft {
  readonly texts: TypedTexts;
  readonly cwd?: string;
  readonly owner?: string;
}

interface WorkerFormProps {
  formRef: RefObject<HTMLFormElement | null>;
  worker: Worker;
  owner: string | undefined;
  /** Whether the worker can run on the server's machine. */
  isUsable: boolean;
  /** Whether the worker is an agent or a model by itself: then only its prompt is in sight. */
  isAgent: boolean;
  draft: Draft;
  onDraft: (draft: Draft) => void;
  /** Start the run; a run that repeats another one has its folder and owner, and the form does not ask for them. */
  start?: (request: RunRequest) => Promise<{ run_id: string }>;
  onDispatched: (runId: string) => void;
  onClose: () => void;
}

/** The form for a worker's input, from its JSON Schema. Errors of the server are shown, and the values stay. */
export function WorkerForm({
  formRef,
  worker,
  owner: listOwner,
  isUsable,
  isAgent,
  draft,
  onDraft,
  start,
  onDispatched,
  onClose,
}: WorkerFormProps) {
  const fields = useMemo(() => fieldsOf(worker.input_schema), [worker.input_schema]);
  const { texts, cwd = "", owner = listOwner ?? "" } = draft;
  const [visibleFields, foldedFields] = splitFields(fields, isAgent);
  // Open the section when it has values, so that none is sent unseen.
  const [isMoreOpen] = useState(
    Boolean(draft.cwd ?? draft.owner) || foldedFields.some(({ name }) => texts[name] !== undefined),
  );
  const [wasSubmitted, setWasSubmitted] = useState(false);
  // The same for every attempt, so that a repeated request starts one run only.
  const [idempotencyKey] = useState(newIdempotencyKey);
  const isSentRef = useRef(false);
  const dispatchMutation = useMutation({
    mutationFn: start ?? dispatch,
    onSuccess: ({ run_id }) => onDispatched(run_id),
    onError: () => void (isSentRef.current = false),
  });
  const { input, problems } = readForm(fields, texts);
  const cwdProblem = cwd !== "" && !cwd.startsWith("/") ? "Must be an absolute path." : undefined;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (isSentRef.current || !isUsable) return;
    setWasSubmitted(true);
    if (Object.keys(problems).length || cwdProblem) {
      // After React has marked the invalid fields.
      setTimeout(() => formRef.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
      return;
    }
    isSentRef.current = true;
    const body: RunRequest = { worker: worker.slug, input, idempotency_key: idempotencyKey };
    dispatchMutation.mutate({ ...body, ...(owner.trim() && { owner: owner.trim() }), ...(cwd && { cwd }) });
  };
  return (
    <form ref={formRef} noValidate onSubmit={submit} className="flex flex-col gap-4">
      {(isUsable || fields.length > 0) && (
        <Fields
          fields={visibleFields}
          texts={texts}
          problems={wasSubmitted ? problems : {}}
          onType={(name, text) => onDraft({ ...draft, texts: { ...texts, [name]: text } })}
        />
      )}
      {(!start || foldedFields.length > 0) && (
        <details open={isMoreOpen || (wasSubmitted && foldedFields.some(({ name }) => problems[name] !== undefined))}>
          <summary className="cursor-pointer text-12 font-medium text-text-2">
            {foldedFields.length > 0 ? "Options" : "More"}
            <span className="ml-2 font-normal text-text-3">
              {[
                ...foldedFields.map(({ label }) => label.toLowerCase()),
                ...(start ? [] : ["working folder", "owner"]),
              ].join(", ")}
            </span>
          </summary>
          <div className="mt-3 flex flex-col gap-4">
            {foldedFields.length > 0 && (
              <Fields
                fields={foldedFields}
                texts={texts}
                problems={wasSubmitted ? problems : {}}
                onType={(name, text) => onDraft({ ...draft, texts: { ...texts, [name]: text } })}
              />
            )}
            {!start && (
              <>
                <TextField
                  label="Working folder"
                  description="Absolute path on the server's machine. Default: the folder in which the server was started."
                  value={cwd}
                  onChange={(text) => onDraft({ ...draft, cwd: text })}
                  problem={wasSubmitted ? cwdProblem : undefined}
                />
                <TextField
                  label="Owner"
                  description="The owner that the run is listed under. Default: the worker."
                  value={owner}
                  onChange={(text) => onDraft({ ...draft, owner: text })}
                />
              </>
            )}
          </div>
        </details>
      )}
      <FormFooter
        canRun={isUsable && !dispatchMutation.isPending && !dispatchMutation.isSuccess}
        isStarting={dispatchMutation.isPending}
        onClose={onClose}
      >
        {dispatchMutation.isError && <ErrorMessage error={dispatchMutation.error} />}
      </FormFooter>
    </form>
  );
}

/** Split the fields into those in sight and those that are folded: an agent needs only its prompt. */
function splitFields(fields: readonly Field[], isAgent: boolean): [readonly Field[], readonly Field[]] {
  const isVisible = ({ name, required }: Field) => !isAgent || required || name === PROMPT;
  return [fields.filter(isVisible), fields.filter((field) => !isVisible(field))];
}

const PROMPT = "prompt";

/** Return the first field of the form; undefined if the worker needs no input. */
export function firstField(formRef: HTMLFormElement): HTMLElement | undefined {
  return [...formRef.elements].find(
    (element): element is HTMLElement =>
      element instanceof HTMLElement && element.tagName !== "BUTTON" && !element.closest("details"),
  );
}

/** Not `randomUUID`, which browsers offer only on secure origins. */
const newIdempotencyKey = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

interface FieldsProps {
  fields: readonly Field[];
  texts: TypedTexts;
  problems: Readonly<Record<string, string>>;
  onType: (name: string, text: string) => void;
}

function Fields({ fields, texts, problems, onType }: FieldsProps) {
  if (fields.length === 0) return <p className="text-xs text-text-3">This worker needs no input.</p>;
  return fields.map((field) => (
    <SchemaField
      key={field.name}
      field={field}
      value={texts[field.name] ?? field.initial}
      problem={problems[field.name]}
      onType={(text) => onType(field.name, text)}
    />
  ));
}
