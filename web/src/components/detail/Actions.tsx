import { useMutation, useQueryClient } from "@tanstack/react-query";
import clsx from "clsx";
import { useState } from "react";
import { cancelRun, logUrl, patchRuns, pinRun, type RunDetail, runQuery } from "@/api";
import { AgainActions } from "@/components/again/AgainActions";
import { Button, buttonClass } from "@/components/ui/Button";
import { CopyButton } from "@/components/ui/CopyButton";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { Icon } from "@/components/ui/Icon";
import { runUrl } from "@/useAddress";
import { isActive } from "@/views/detail";
import { CancelButton } from "./CancelButton";
import { DeleteDialog } from "./DeleteDialog";

/** Buttons for what can be done with a run. */
export function Actions({ run }: { run: RunDetail }) {
  const queries = useQueryClient();
  const [isDeleting, setIsDeleting] = useState(false);
  const isRunActive = isActive(run.status);
  const [wasActive] = useState(isRunActive);
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
      <span className="-mr-1.5 flex shrink-0 items-center max-md:[&>*:not(.on-phone)]:hidden">
        <AgainActions run={run} />
        <CopyButton text={() => runUrl(run.id)} icon="link" label="Copy link" title="Copy the link to this run (c)" />
        <Button
          variant="ghost"
          disabled={pinMutation.isPending}
          onClick={() => pinMutation.mutate()}
          aria-label={run.pinned ? "Unpin" : "Pin"}
          title={run.pinned ? "Pinned: kept when old runs are deleted" : "Pin: keep this run when old runs are deleted"}
          className="px-1.5"
        >
          <Icon name="pin" className={run.pinned ? "text-accent-text" : "text-icon"} />
        </Button>
        <a
          href={logUrl(run.id)}
          download
          aria-label="Download log"
          title="Download log"
          className={buttonClass("ghost", "px-1.5")}
        >
          <Icon name="download" className="text-icon" />
        </a>
        {/* One of both, in the same place: nothing moves when the run ends. */}
        <span className={clsx("on-phone ml-1 flex justify-end", wasActive && "min-w-[116px]")}>
          {isRunActive ? (
            <CancelButton isCancelling={isCancelling} onCancel={() => cancelMutation.mutate()} />
          ) : (
            <Button variant="ghost" onClick={() => setIsDeleting(true)} aria-label="Delete" title="Delete this run">
              <Icon name="trash" className="text-icon" />
            </Button>
          )}
        </span>
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
