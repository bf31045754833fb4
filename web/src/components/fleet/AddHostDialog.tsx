import { CopyButton } from "@/components/ui/CopyButton";
import { Dialog } from "@/components/ui/Dialog";

/** The command that starts a host, with the label that waiting runs need. */
export function AddHostDialog({ label, onClose }: { label: string | null; onClose: () => void }) {
  const command = `shopfloor host --slots 4${label === null ? "" : ` --label ${label}`}`;
  return (
    <Dialog title="Add a host" onClose={onClose}>
      <p className="text-text-2">
        A host is a process that executes runs. Start one on the machine of this server, with the same storage:
      </p>
      <p className="mt-3 flex items-center gap-2 rounded-2 bg-bg-sunken px-3 py-2">
        <code className="grow font-mono text-12 break-words">{command}</code>
        <CopyButton text={command} label="Copy" title="Copy the command" />
      </p>
    </Dialog>
  );
}
