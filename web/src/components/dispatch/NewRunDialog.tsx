import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useRef, useState } from "react";
import { providersQuery, workersQuery } from "@/api";
import { Foot } from "@/components/dispatch/FormFooter";
import { type Draft, firstField, WorkerForm } from "@/components/dispatch/WorkerForm";
import { useLastWorker, WorkerSelect } from "@/components/dispatch/WorkerSelect";
import { Dialog } from "@/components/ui/Dialog";
import { Loading } from "@/components/ui/EmptyState";
import { Trouble } from "@/components/ui/ErrorMessage";
import { matching } from "@/views/filterOptions";
import { lackOf } from "@/views/providers";

interface DispatchProps {
  /** The owner whose runs are listed. */
  owner: string | undefined;
  onClose: () => void;
  onDispatched: (runId: string) => void;
}

const EMPTY: Draft = { typed: {} };
/** Typed values by worker, so that they survive a look at another worker or a closed dialog. */
let kept: Readonly<Record<string, Draft>> = {};

/** The dialog that starts a run of a worker with an input. */
export function Dispatch({ owner, onClose, onDispatched }: DispatchProps) {
  const query = useQuery(workersQuery);
  const known = useQuery(providersQuery).data;
  const workers = query.data?.workers ?? [];
  const providers = query.data?.providers ?? [];
  const all = [...workers, ...providers];
  const [last, setLast] = useLastWorker();
  const [drafts, setDrafts] = useState(kept);
  const keep = (slug: string, draft: Draft) => {
    kept = { ...kept, [slug]: draft };
    setDrafts(kept);
  };
  const [words, setWords] = useState("");
  const found = matching(all, words);
  const worker = found.find((one) => one.slug === last) ?? found[0];
  const form = useRef<HTMLFormElement>(null);
  const look = (next: string) => {
    setWords(next);
    // Select the best match: the user runs what was typed, not the previous selection.
    const first = next ? matching(all, next)[0] : undefined;
    if (first) setLast(first.slug);
  };
  const goOn = () => {
    const field = form.current && firstField(form.current);
    if (field) field.focus();
    else form.current?.requestSubmit();
  };
  const runOnKeys = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.current?.requestSubmit();
  };
  return (
    <Dialog title="New run" onClose={onClose}>
      {query.isPending && <Loading what="workers" />}
      {query.isError && <Trouble error={query.error} onRetry={() => void query.refetch()} />}
      {query.isSuccess && workers.length === 0 && <NoWorkers />}
      <div className="flex flex-col gap-4" onKeyDown={runOnKeys}>
        {all.length > 0 && (
          <WorkerSelect
            workers={workers}
            providers={providers}
            known={known}
            words={words}
            found={found}
            onWords={look}
            chosen={worker}
            onChoose={setLast}
            onEnter={goOn}
          />
        )}
        {worker ? (
          <WorkerForm
            key={worker.slug}
            form={form}
            worker={worker}
            owner={owner}
            isUsable={!providers.includes(worker) || lackOf(worker.slug, known) === null}
            draft={drafts[worker.slug] ?? EMPTY}
            onDraft={(draft) => keep(worker.slug, draft)}
            onDispatched={(runId) => {
              keep(worker.slug, EMPTY);
              onDispatched(runId);
            }}
            onClose={onClose}
          />
        ) : (
          <Foot canRun={false} onClose={onClose} />
        )}
      </div>
    </Dialog>
  );
}

function NoWorkers() {
  return (
    <p className="mb-4 rounded bg-quiet-back p-3 text-ink-dull">
      There are no workers here. <Code>shopfloor workers new my-worker</Code> makes one in{" "}
      <Code>./workers/my-worker</Code>; <Code>shopfloor up --workers ./workers</Code> looks for them there.
    </p>
  );
}

const Code = ({ children }: { children: string }) => (
  <code className="font-mono text-xs break-words text-ink">{children}</code>
);
