import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { cancelRun, patchRuns, pinRun, type RunDetail, runQuery } from "@/api";
import { RunMenu } from "@/components/again/RunMenu";
import type { Again } from "@/components/again/useAgain";
import { Button } from "@/components/ui/Button";
import { CopyButton } from "@/components/ui/CopyButton";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { Icon } from "@/components/ui/Icon";
import { runUrl } from "@/useAddress";
import { isActive } from "@/views/detail";
import { CancelButton } from "./CancelButton";

/** Buttons for what can be done with a run. */
export function Actions({ run, again }: { run: RunDetail; again: Again | null }) {
  const queries = useQueryClient();
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
  // The run stops as soon as it can; then its row has the status "cancelled".
  const isCancelling = cancelMutation.isPending || cancelMutation.isSuccess;
  const error = (isRunActive ? cancelMutation.error : null) ?? pinMutation.error ?? again?.error;
  return (
    <>
      <span className="-mr-1.5 flex shrink-0 items-center">
        <CopyButton text={() => runUrl(run.id)} icon="link" label="Copy link" title="Copy the link to this run (c)" />
        {again && (
          <Button
            variant="ghost"
            disabled={pinMutation.isPending}
            onClick={() => pinMutation.mutate()}
            aria-label={run.pinned ? "Unpin" : "Pin"}
            title={
              run.pinned ? "Pinned: kept when old runs are deleted" : "Pin: keep this run when old runs are deleted"
            }
            className="mr-1 px-1.5"
          >
            <Icon name="pin" className={run.pinned ? "text-accent-text" : "text-icon"} />
          </Button>
        )}
        <RunMenu run={run} again={again} />
        {/* The place of the button stays when the run ends: nothing moves. */}
        {again && (isRunActive || wasActive) && (
          <span className="ml-1.5 flex min-w-[116px] justify-end max-md:min-w-8">
            {isRunActive && <CancelButton isCancelling={isCancelling} onCancel={() => cancelMutation.mutate()} />}
          </span>
        )}
      </span>
      {error && (
        <div className="-mx-3 basis-full">
          <ErrorMessage error={error} />
        </div>
      )}
    </>
  );
}
