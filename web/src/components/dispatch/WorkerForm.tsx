import { useMutation } from "@tanstack/react-query";
import { type RefObject, type SubmitEvent, useMemo, useRef, useState } from "react";
import { dispatch, type Dispatch, type Worker } from "@/api";
import { FieldRow } from "@/components/dispatch/SchemaField";
import { Foot } from "@/components/dispatch/FormFooter";
import { LineRow } from "@/components/dispatch/LabeledField";
import { Trouble } from "@/components/ui/ErrorMessage";
import { filled, type Typed } from "@/views/formValues";
import { type Field, fieldsOf } from "@/views/schemaForm";

/** Values that the user has typed. */
export interface Draft {
  readonly typed: Typed;
  readonly cwd?: string;
  readonly owner?: string;
}

interface WorkerFormProps {
  form: RefObject<HTMLFormElement | null>;
  worker: Worker;
  owner: string | undefined;
  /** Whether the worker can run on the server's machine. */
  isUsable: boolean;
  draft: Draft;
  onDraft: (draft: Draft) => void;
  onDispatched: (runId: string) => void;
  onClose: () => void;
}

/** The form for a worker's input, from its JSON Schema. Errors of the server are shown, and the values stay. */
export function WorkerForm({
  form,
  worker,
  owner: shownOwner,
  isUsable,
  draft,
  onDraft,
  onDispatched,
  onClose,
}: WorkerFormProps) {
  const fields = useMemo(() => fieldsOf(worker.input_schema), [worker.input_schema]);
  const { typed, cwd = "", owner = shownOwner ?? "" } = draft;
  // Open the section when it has values, so that none is sent unseen.
  const [hasMore] = useState(Boolean(draft.cwd ?? draft.owner));
  const [wasTried, setWasTried] = useState(false);
  // The same for every attempt, so that a repeated request starts one run only.
  const [key] = useState(newKey);
  const isAsked = useRef(false);
  const asking = useMutation({
    mutationFn: dispatch,
    onSuccess: ({ run_id }) => onDispatched(run_id),
    onError: () => void (isAsked.current = false),
  });
  const { input, problems } = filled(fields, typed);
  const cwdProblem = cwd !== "" && !cwd.startsWith("/") ? "This is to be an absolute path." : undefined;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (isAsked.current || !isUsable) return;
    setWasTried(true);
    if (Object.keys(problems).length || cwdProblem) {
      // After React has marked the invalid fields.
      setTimeout(() => form.current?.querySelector<HTMLElement>("[aria-invalid=true]")?.focus());
      return;
    }
    isAsked.current = true;
    const body: Dispatch = { worker: worker.slug, input, idempotency_key: key };
    asking.mutate({ ...body, ...(owner.trim() && { owner: owner.trim() }), ...(cwd && { cwd }) });
  };
  return (
    <form ref={form} noValidate onSubmit={submit} className="flex flex-col gap-4">
      <Fields
        fields={fields}
        typed={typed}
        problems={wasTried ? problems : {}}
        onType={(name, text) => onDraft({ ...draft, typed: { ...typed, [name]: text } })}
      />
      <details open={hasMore}>
        <summary className="cursor-pointer text-xs font-medium text-ink-dull">More</summary>
        <div className="mt-3 flex flex-col gap-4">
          <LineRow
            label="Working folder"
            description="On the server's machine, as an absolute path; the folder that the server was started in by default."
            value={cwd}
            onChange={(text) => onDraft({ ...draft, cwd: text })}
            problem={wasTried ? cwdProblem : undefined}
          />
          <LineRow
            label="Owner"
            description="Under whom it is listed; the worker itself by default."
            value={owner}
            onChange={(text) => onDraft({ ...draft, owner: text })}
          />
        </div>
      </details>
      <Foot canRun={isUsable && !asking.isPending && !asking.isSuccess} isStarting={asking.isPending} onClose={onClose}>
        {asking.isError && <Trouble error={asking.error} />}
      </Foot>
    </form>
  );
}

/** Return the first field of the form; undefined where the worker needs no input. */
export function firstField(form: HTMLFormElement): HTMLElement | undefined {
  return [...form.elements].find(
    (one): one is HTMLElement => one instanceof HTMLElement && one.tagName !== "BUTTON" && !one.closest("details"),
  );
}

/** Not `randomUUID`, which browsers offer only on secure origins. */
const newKey = () => crypto.getRandomValues(new Uint32Array(4)).join("-");

interface FieldsProps {
  fields: readonly Field[];
  typed: Typed;
  problems: Readonly<Record<string, string>>;
  onType: (name: string, text: string) => void;
}

function Fields({ fields, typed, problems, onType }: FieldsProps) {
  if (fields.length === 0) return <p className="text-xs text-ink-faint">It needs nothing to begin with.</p>;
  return fields.map((field) => (
    <FieldRow
      key={field.name}
      field={field}
      value={typed[field.name] ?? field.initial}
      problem={problems[field.name]}
      onType={(text) => onType(field.name, text)}
    />
  ));
}
