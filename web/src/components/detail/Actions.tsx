import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cancelRun, logUrl, patchRuns, pinRun, type RunDetail, runQuery } from "@/api";
import { AgainActions } from "@/components/again/AgainActions";
import { Button } from "@/components/ui/Button";
import { CopyButton } from "@/components/ui/CopyButton";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { runUrl } from "@/useAddress";
import { isActive } from "@/views/detail";
import { CancelButton } from "./CancelButton";
import { DeleteDialog } from "./DeleteDialog";

/** Buttons for what can be done with a run. */
export function Actions({ run }: { run: RunDetail }) {
  const queries = useQueryClient();
  const [isDeleting, setIsDeleting] = useState(false);
  const isRunActive = isActive(run.status);
  const cancelMutation = useMutation({
    mutationFn: () => cancelRun(run.id),
    onSuccess: () => queries.invalidateQueries(runQuery(run.id)),
  });
  const pinMutation = useMutation({
    mutationFn: () => pinRun(run.id, !run.pinned),
    onSuccess: (row) => patchRuns(queries, [row]),
  });
  // The run stops as soon as it can; its row then tells so.
  const isCancelling = cancelMutation.isPending || cancelMutation.isSuccess;
  const error = (isRunActive ? cancelMutation.error : null) ?? pinMutation.error;
  return (
    <>
      <span className="-ml-2 flex flex-wrap items-center @3xl:ml-auto">
        {isRunActive && <CancelButton isCancelling={isCancelling} onCancel={() => cancelMutation.mutate()} />}
        <AgainActions run={run} />
        <CopyButton text={() => runUrl(run.id)} label="Copy link" title="Copy the link to this run (c)" />
        <Button
          variant="ghost"
          disabled={pinMutation.isPending}
          onClick={() => pinMutation.mutate()}
          title={run.pinned ? "Kept when old runs are deleted" : "Keep this run when old runs are deleted"}
        >
          {run.pinned ? "Unpin" : "Pin"}
        </Button>
        <a
          href={logUrl(run.id)}
          download
          className="rounded px-2 py-1 text-xs font-medium text-ink-dull hover:bg-app-hover hover:text-ink"
        >
          Download log
        </a>
        {!isRunActive && (
          <Button variant="ghost" onClick={() => setIsDeleting(true)}>
            Delete
          </Button>
        )}
      </span>
      {error && (
        <div className="-mx-3 basis-full">
          <ErrorMessage error={error} />
        </div>
      )}
      {isDeleting && <DeleteDialog run={run} onClose={() => setIsDeleting(false)} />}
    </>
  );
}
