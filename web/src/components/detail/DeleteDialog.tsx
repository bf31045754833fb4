import { useMutation, useQueryClient } from "@tanstack/react-query";
import { removeRuns, deleteRun, type RunDetail } from "@/api";
import { Button } from "@/components/ui/Button";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { useChangeAddress } from "@/useAddress";
import { selectRun } from "@/views/addressParameters";
import { oneLine } from "@/views/json";

/** Ask for confirmation before a run is deleted, and say what is deleted with it. */
export function DeleteDialog({ run, onClose }: { run: RunDetail; onClose: () => void }) {
  const changeAddress = useChangeAddress();
  const queries = useQueryClient();
  const deletion = useMutation({
    mutationFn: () => deleteRun(run.id),
    onSuccess: ({ deleted }) => {
      // Replace the history entry: there is no run to go back to.
      changeAddress(selectRun(), true);
      removeRuns(queries, deleted);
    },
  });
  return (
    <Dialog title="Delete this run?" onClose={onClose}>
      <p className="line-clamp-3 break-words text-text-2">{oneLine(run.task || run.name)}</p>
      <p className="mt-2">{deletedText(run)} This cannot be undone.</p>
      {deletion.error && <ErrorMessage error={deletion.error} />}
      <div className="mt-4 flex justify-end gap-2">
        <Button onClick={onClose}>Keep it</Button>
        <Button variant="danger" disabled={deletion.isPending} onClick={() => deletion.mutate()}>
          {deletion.isPending ? "Deleting…" : "Delete permanently"}
        </Button>
      </div>
    </Dialog>
  );
}

function deletedText({ children }: RunDetail): string {
  const own = "This deletes its log, transcript and timeline";
  if (children === 0) return `${own}.`;
  if (children === 1) return `${own}, and its sub-run with all runs below it.`;
  return `${own}, and its ${children.toLocaleString("en")} sub-runs with all runs below them.`;
}
