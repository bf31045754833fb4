import { Dialog } from "@/components/ui/Dialog";

const SHORTCUTS: readonly [string, string][] = [
  ["j / k", "the next, the previous run; in a transcript, event"],
  ["gg / G", "the first, the last"],
  ["Enter", "open the run; in a transcript, open or close the event"],
  ["Escape", "back to the list of runs"],
  ["/", "search runs; in a transcript, search in it"],
  ["f", "follow the end of the transcript, or stop following"],
  ["e", "open all tool calls, or close them"],
  ["c", "copy the link to the run, or to the chosen event"],
  ["n", "run a worker"],
  ["?", "this help"],
];

export function HelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl className="grid grid-cols-[6rem_1fr] gap-x-4 gap-y-1.5">
        {SHORTCUTS.map(([keys, meaning]) => (
          <div key={keys} className="contents">
            <dt className="font-mono text-ink-dull">{keys}</dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}
