import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cancel, logFile, patchRuns, pin, type RunDetail, runQuery } from "@/api";
import { Button } from "@/components/ui/Button";
import { Copy } from "@/components/ui/CopyButton";
import { Trouble } from "@/components/ui/ErrorMessage";
import { linkTo } from "@/address";
import { goesOn } from "@/views/detail";
import { Cancel } from "./CancelButton";
import { Delete } from "./DeleteDialog";

/** Buttons for what can be done with a run. */
export function Actions({ run }: { run: RunDetail }) {
  const queries = useQueryClient();
  const [deletes, setDeletes] = useState(false);
  const isLive = goesOn(run.status);
  const cancelling = useMutation({
    mutationFn: () => cancel(run.id),
    onSuccess: () => queries.invalidateQueries(runQuery(run.id)),
  });
  const pinning = useMutation({
    mutationFn: () => pin(run.id, !run.pinned),
    onSuccess: (row) => patchRuns(queries, [row]),
  });
  // The run stops as soon as it can; its row then tells so.
  const isAsked = cancelling.isPending || cancelling.isSuccess;
  const trouble = (isLive ? cancelling.error : null) ?? pinning.error;
  return (
    <>
      <span className="-ml-2 flex flex-wrap items-center @3xl:ml-auto">
        {isLive && <Cancel isAsked={isAsked} onCancel={() => cancelling.mutate()} />}
        <Copy text={() => linkTo(run.id)} label="Copy link" title="Copy the link to this run (c)" />
        <Button
          look="bare"
          disabled={pinning.isPending}
          onClick={() => pinning.mutate()}
          title={run.pinned ? "Kept when old runs are deleted" : "Keep it when old runs are deleted"}
        >
          {run.pinned ? "Unpin" : "Pin"}
        </Button>
        <a
          href={logFile(run.id)}
          download
          className="rounded px-2 py-1 text-xs font-medium text-ink-dull hover:bg-app-hover hover:text-ink"
        >
          Download log
        </a>
        {!isLive && (
          <Button look="bare" onClick={() => setDeletes(true)}>
            Delete
          </Button>
        )}
      </span>
      {trouble && (
        <div className="-mx-3 basis-full">
          <Trouble error={trouble} />
        </div>
      )}
      {deletes && <Delete run={run} onClose={() => setDeletes(false)} />}
    </>
  );
}
