import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { providersQuery, workersQuery } from "@/api";
import { WorkerForm } from "@/parts/dispatch/WorkerForm";
import { useLastWorker, WorkerSelect } from "@/parts/dispatch/WorkerSelect";
import { Dialog } from "@/parts/ui/Dialog";
import { Loading } from "@/parts/ui/Quiet";
import { Trouble } from "@/parts/ui/Trouble";
import type { Typed } from "@/views/formValues";

interface DispatchProps {
  /** Whose runs are looked at. */
  owner: string | undefined;
  onClose: () => void;
  onDispatched: (runId: string) => void;
}

/** Asks for a run: of which worker, and with what. */
export function Dispatch({ owner, onClose, onDispatched }: DispatchProps) {
  const query = useQuery(workersQuery);
  const usable = useQuery(providersQuery).data?.usable;
  const workers = query.data?.workers ?? [];
  const providers = query.data?.providers ?? [];
  const all = [...workers, ...providers];
  const [last, setLast] = useLastWorker();
  // By worker: who looks at another one finds what was typed when he comes back.
  const [drafts, setDrafts] = useState<Readonly<Record<string, Typed>>>({});
  const worker = all.find((one) => one.slug === last) ?? all[0];
  return (
    <Dialog title="New run" onClose={onClose}>
      {query.isPending && <Loading what="workers" />}
      {query.isError && <Trouble error={query.error} onRetry={() => void query.refetch()} />}
      {query.isSuccess && workers.length === 0 && <NoWorkers />}
      {worker && (
        <div className="flex flex-col gap-4">
          <WorkerSelect workers={workers} providers={providers} usable={usable} chosen={worker} onChoose={setLast} />
          <WorkerForm
            key={worker.slug}
            worker={worker}
            owner={owner}
            typed={drafts[worker.slug] ?? {}}
            onType={(name, text) => setDrafts((before) => ({ ...before, [worker.slug]: { ...before[worker.slug], [name]: text } }))}
            onDispatched={onDispatched}
          />
        </div>
      )}
    </Dialog>
  );
}

function NoWorkers() {
  return (
    <p className="mb-4 rounded bg-quiet-back p-3 text-ink-dull">
      There are no workers here. <Code>shopfloor workers new my-worker</Code> makes one in <Code>./workers/my-worker</Code>;{" "}
      <Code>shopfloor up --workers ./workers</Code> looks for them there.
    </p>
  );
}

const Code = ({ children }: { children: string }) => <code className="font-mono text-xs break-words text-ink">{children}</code>;
