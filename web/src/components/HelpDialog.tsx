import { Button } from "@/components/ui/Button";
import { Dialog } from "@/components/ui/Dialog";

const SHORTCUTS: readonly [string, string][] = [
  ["j / k", "next or previous run; in a transcript: event"],
  ["gg / G", "first or last"],
  ["Enter", "open the run; in a transcript: expand or collapse the event"],
  ["Escape", "back to the list of runs"],
  ["/", "search runs; in a transcript: search in the run"],
  ["f", "follow the end of the transcript, or stop"],
  ["e", "expand or collapse all tool calls"],
  ["→ / ←", "show or hide the sub-runs of the selected run"],
  ["[ / ]", "previous or next failure of the run"],
  ["w", "go to what needs you, then to the next"],
  ["1 – 9", "choose an answer of the marked question"],
  ["r / R", "run the run again; edit its input first"],
  ["F", "fork the run from the selected event"],
  ["x", "export the run"],
  ["c", "copy the link to the run or the selected event"],
  ["n", "start a new run"],
  ["p", "list the plugins"],
  ["g o / g r / g f", "overview, runs, fleet"],
  ["?", "this help"],
];

export function HelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Keyboard shortcuts" onClose={onClose}>
      <dl className="grid grid-cols-[8rem_1fr] gap-x-4 gap-y-1.5">
        {SHORTCUTS.map(([keys, meaning]) => (
          <div key={keys} className="contents">
            <dt className="flex items-center text-text-3">
              <Keys keys={keys} />
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <div className="mt-4 flex justify-end">
        <Button onClick={onClose}>Close</Button>
      </div>
    </Dialog>
  );
}

/** Keys as they are on a keyboard: `j / k`, `1 – 9`, `g o / g r`. */
function Keys({ keys }: { keys: string }) {
  return keys.split(/( )/).map((part, index) =>
    part === " " || part === "–" || (part === "/" && keys !== "/") ? (
      <span key={index} className="whitespace-pre">
        {part}
      </span>
    ) : (
      // Also on a touch screen, which hides hints: the keys are what this dialog is for.
      <kbd key={index} className="inline-flex!">
        {part}
      </kbd>
    ),
  );
}
