import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import { pluginsQuery, providersQuery, workersQuery } from "@/api";
import { FormFooter } from "@/components/dispatch/FormFooter";
import { type Draft, firstField, WorkerForm } from "@/components/dispatch/WorkerForm";
import { useLastWorker, WorkerSelect } from "@/components/dispatch/WorkerSelect";
import { PluginsDialog } from "@/components/plugins/PluginsDialog";
import { Dialog } from "@/components/ui/Dialog";
import { Loading } from "@/components/ui/EmptyState";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { findWorkers } from "@/views/filterOptions";
import { isPluginWorker, pluginWorkers } from "@/views/plugins";
import { unavailableReason } from "@/views/providers";

interface NewRunDialogProps {
  /** The owner whose runs are listed. */
  owner: string | undefined;
  onClose: () => void;
  onDispatched: (runId: string) => void;
}

const EMPTY_DRAFT: Draft = { texts: {} };
/** Typed values by worker, so that they survive a look at another worker or a closed dialog. */
let savedDrafts: Readonly<Record<string, Draft>> = {};

/** The dialog that starts a run of a worker with an input. */
export function NewRunDialog({ owner, onClose, onDispatched }: NewRunDialogProps) {
  const query = useQuery(workersQuery);
  const providerList = useQuery(providersQuery).data;
  const plugins = useQuery(pluginsQuery).data?.plugins ?? [];
  const usable = query.data?.workers ?? [];
  const workers = usable.filter((candidate) => !isPluginWorker(candidate));
  const pluginList = pluginWorkers(usable, plugins);
  const providers = query.data?.providers ?? [];
  const allWorkers = [...workers, ...pluginList, ...providers];
  const [lastSlug, setLastSlug] = useLastWorker();
  const [drafts, setDrafts] = useState(savedDrafts);
  const saveDraft = (slug: string, draft: Draft) => {
    savedDrafts = { ...savedDrafts, [slug]: draft };
    setDrafts(savedDrafts);
  };
  const [searchText, setSearchText] = useState("");
  const [isPluginListOpen, setIsPluginListOpen] = useState(false);
  const matches = findWorkers(allWorkers, searchText);
  const worker = matches.find((candidate) => candidate.slug === lastSlug) ?? matches[0];
  const formRef = useRef<HTMLFormElement>(null);
  const search = (next: string) => {
    setSearchText(next);
    // Select the best match: the user runs what was typed, not the previous selection.
    const first = next ? findWorkers(allWorkers, next)[0] : undefined;
    if (first) setLastSlug(first.slug);
  };
  const focusForm = () => {
    const field = formRef.current && firstField(formRef.current);
    if (field) field.focus();
    else formRef.current?.requestSubmit();
  };
  const hasFocusedRef = useRef(false);
  useEffect(() => {
    if (!worker || hasFocusedRef.current) return;
    hasFocusedRef.current = true;
    // The form of an agent is its prompt.
    if (providers.includes(worker) && formRef.current) firstField(formRef.current)?.focus();
  });
  const submitOnKeys = (event: KeyboardEvent) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) formRef.current?.requestSubmit();
  };
  return (
    <>
      <Dialog title="New run" onClose={onClose}>
        {query.isPending && <Loading subject="workers" />}
        {query.isError && <ErrorMessage error={query.error} onRetry={() => void query.refetch()} />}
        {query.isSuccess && usable.length === 0 && <NoWorkers />}
        <div className="flex flex-col gap-4" onKeyDown={submitOnKeys}>
          {allWorkers.length > 0 && (
            <WorkerSelect
              workers={workers}
              pluginWorkers={pluginList}
              plugins={plugins}
              onPlugins={() => setIsPluginListOpen(true)}
              providers={providers}
              providerList={providerList}
              searchText={searchText}
              matches={matches}
              onSearch={search}
              selected={worker}
              onSelect={setLastSlug}
              onEnter={focusForm}
            />
          )}
          {worker ? (
            <WorkerForm
              key={worker.slug}
              formRef={formRef}
              worker={worker}
              owner={owner}
              isUsable={
                usable.includes(worker) ||
                (providers.includes(worker) && unavailableReason(worker.slug, providerList) === null)
              }
              isAgent={providers.includes(worker)}
              draft={drafts[worker.slug] ?? EMPTY_DRAFT}
              onDraft={(draft) => saveDraft(worker.slug, draft)}
              onDispatched={(runId) => {
                saveDraft(worker.slug, EMPTY_DRAFT);
                onDispatched(runId);
              }}
              onClose={onClose}
            />
          ) : (
            <FormFooter canRun={false} onClose={onClose} />
          )}
        </div>
      </Dialog>
      {isPluginListOpen && (
        <PluginsDialog
          onClose={() => setIsPluginListOpen(false)}
          onRun={(name) => {
            setSearchText("");
            setLastSlug(name);
            setIsPluginListOpen(false);
          }}
        />
      )}
    </>
  );
}

function NoWorkers() {
  return (
    <p className="mb-4 rounded-2 bg-n-3 p-3 text-text-2">
      No workers found. <Code>shopfloor workers new my-worker</Code> creates one in <Code>./workers/my-worker</Code>;{" "}
      <Code>shopfloor up --workers ./workers</Code> loads it.
    </p>
  );
}

const Code = ({ children }: { children: string }) => (
  <code className="font-mono text-xs break-words text-text">{children}</code>
);
