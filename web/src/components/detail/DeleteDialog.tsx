import { useMutation, useQueryClient } from "@tanstack/react-query";
import { forgetRuns, remove, type RunDetail } from "@/api";
import { Button } from "@/components/ui/Button";
import { Dialog } from "@/components/ui/Dialog";
import { Trouble } from "@/components/ui/ErrorMessage";
import { useGo } from "@/address";
import { toRun } from "@/views/address";
import { oneLine } from "@/views/json";

/** Ask for confirmation before a run is deleted, and say what is deleted with it. */
export function Delete({ run, onClose }: { run: RunDetail; onClose: () => void }) {
  const go = useGo();
  const queries = useQueryClient();
  const removing = useMutation({
    mutationFn: () => remove(run.id),
    onSuccess: ({ deleted }) => {
      // Replace the history entry: there is no run to go back to.
      go(toRun(), true);
      forgetRuns(queries, deleted);
    },
  });
  return (
    <Dialog title="Delete this run?" onClose={onClose}>
      <p className="line-clamp-3 break-words text-ink-dull">{oneLine(run.task || run.name)}</p>
      <p className="mt-2">{whatGoes(run)} This cannot be undone.</p>
      {removing.error && <Trouble error={removing.error} />}
      <div className="mt-4 flex justify-end gap-2">
        <Button onClick={onClose}>Keep it</Button>
        <Button look="danger" disabled={removing.isPending} onClick={() => removing.mutate()}>
          {removing.isPending ? "Deleting…" : "Delete for good"}
        </Button>
      </div>
    </Dialog>
  );
}

function whatGoes({ children }: RunDetail): string {
  const own = "Its log, its transcript and its timeline are deleted";
  if (children === 0) return `${own}.`;
  if (children === 1) return `${own}, and so is its sub-run, with all that it called.`;
  return `${own}, and so are its ${children.toLocaleString("en")} sub-runs, with all that they called.`;
}
