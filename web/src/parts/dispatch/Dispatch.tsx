import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { providersQuery, workersQuery } from "@/api";
import { type Draft, WorkerForm } from "@/parts/dispatch/WorkerForm";
import { useLastWorker, WorkerSelect } from "@/parts/dispatch/WorkerSelect";
import { Dialog } from "@/parts/ui/Dialog";
import { Loading } from "@/parts/ui/Quiet";
import { Trouble } from "@/parts/ui/Trouble";
import { lackOf } from "@/views/providers";

interface DispatchProps {
  /** Whose runs are looked at. */
  owner: string | undefined;
  onClose: () => void;
  onDispatched: (runId: string) => void;
}

const EMPTY: Draft = { typed: {} };
/** What was typed, by worker: who looks at another one, or closes the form by mistake, finds it when he comes back. */
let kept: Readonly<Record<string, Draft>> = {};

/** Asks for a run: of which worker, and with what. */
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
  const worker = all.find((one) => one.slug === last) ?? all[0];
  return (
    <Dialog title="New run" onClose={onClose}>
      {query.isPending && <Loading what="workers" />}
      {query.isError && <Trouble error={query.error} onRetry={() => void query.refetch()} />}
      {query.isSuccess && workers.length === 0 && <NoWorkers />}
      {worker && (
        <div className="flex flex-col gap-4">
          <WorkerSelect workers={workers} providers={providers} known={known} chosen={worker} onChoose={setLast} />
          <WorkerForm
            key={worker.slug}
            worker={worker}
            owner={owner}
            isUsable={!providers.includes(worker) || lackOf(worker.slug, known) === null}
            draft={drafts[worker.slug] ?? EMPTY}
            onDraft={(draft) => keep(worker.slug, draft)}
            onDispatched={(runId) => {
              keep(worker.slug, EMPTY);
              onDispatched(runId);
            }}
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
