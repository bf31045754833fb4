import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { inputQuery, rerunRun, type RunDetail, type Worker, workersQuery } from "@/api";
import { type Draft, WorkerForm } from "@/components/dispatch/WorkerForm";
import { Dialog } from "@/components/ui/Dialog";
import { Loading } from "@/components/ui/EmptyState";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { textsOf } from "@/views/formValues";
import { fieldsOf } from "@/views/schemaForm";
import { useShowRun } from "./useAgain";

/** The form of the run's worker with the input of the run, to run it again with another one. */
export function EditDialog({ run, onClose }: { run: RunDetail; onClose: () => void }) {
  const input = useQuery(inputQuery(run.id));
  const workers = useQuery(workersQuery);
  const all = workers.data && [...workers.data.workers, ...workers.data.providers];
  const worker = all?.find(({ slug }) => slug === run.name);
  const error = input.error ?? workers.error;
  return (
    <Dialog title={`Edit and rerun ${run.name}`} onClose={onClose}>
      {error ? (
        <ErrorMessage error={error} />
      ) : !input.data || !all ? (
        <Loading subject="the input" />
      ) : worker ? (
        <EditForm
          run={run}
          worker={worker}
          isAgent={workers.data.providers.includes(worker)}
          input={input.data}
          onClose={onClose}
        />
      ) : (
        <p className="text-text-2">
          The server does not know the worker {run.name}: start it with the folder of the worker, or run{" "}
          <code className="font-mono text-12">shopfloor rerun {run.id.slice(0, 8)}</code>.
        </p>
      )}
    </Dialog>
  );
}

interface EditFormProps {
  run: RunDetail;
  worker: Worker;
  isAgent: boolean;
  input: Record<string, unknown>;
  onClose: () => void;
}

function EditForm({ run, worker, isAgent, input, onClose }: EditFormProps) {
  const showRun = useShowRun();
  const formRef = useRef<HTMLFormElement>(null);
  const initial = useMemo(() => textsOf(fieldsOf(worker.input_schema), input), [worker.input_schema, input]);
  const [draft, setDraft] = useState<Draft>({ texts: initial });
  useEffect(() => {
    formRef.current?.querySelector<HTMLElement>("input, textarea, select")?.focus();
  }, []);
  return (
    <div
      onKeyDown={(event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) formRef.current?.requestSubmit();
      }}
    >
      <WorkerForm
        formRef={formRef}
        worker={worker}
        owner={undefined}
        isUsable
        isAgent={isAgent}
        draft={draft}
        onDraft={setDraft}
        // The new run has the folder and the owner of this one. Null leaves an input out, so that its default applies.
        start={(request) => rerunRun(run.id, { ...emptied(input, request.input), ...request.input })}
        onDispatched={(runId) => {
          onClose();
          showRun(runId);
        }}
        onClose={onClose}
      />
    </div>
  );
}

/** Null for each input that the run had and that was emptied in the form. */
const emptied = (before: Record<string, unknown>, after: Record<string, unknown>) =>
  Object.fromEntries(
    Object.entries(before)
      .filter(([name, value]) => value !== null && !(name in after))
      .map(([name]) => [name, null]),
  );
