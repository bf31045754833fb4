import clsx from "clsx";
import { useState } from "react";
import { Button } from "@/components/ui/Button";
import { countOf, type DiffLine, type FileDiff } from "@/views/diff";

const INITIAL_LINES = 400;
const MAX_LINES = 5_000;
const LOOKS: Record<DiffLine["kind"], string> = {
  same: "text-ink-dull",
  added: "bg-added-back text-ink",
  removed: "bg-removed-back text-ink",
  hunk: "bg-app-side text-ink-faint",
};
const SIGNS: Record<DiffLine["kind"], string> = { same: " ", added: "+", removed: "-", hunk: " " };

/** Diffs of changed files. */
export function FileDiffs({ files }: { files: readonly FileDiff[] }) {
  return files.map((file, n) => <FileDiffView key={n} file={file} />);
}

function FileDiffView({ file }: { file: FileDiff }) {
  const [isExpanded, setIsExpanded] = useState(false);
  const shown = file.lines.slice(0, isExpanded ? MAX_LINES : INITIAL_LINES);
  const hiddenCount = file.lines.length - shown.length;
  return (
    <figure className="overflow-hidden rounded border border-line">
      <figcaption className="flex items-baseline gap-2 border-b border-line bg-app-side px-2 py-0.5 font-mono text-xs">
        <span className="min-w-0 flex-1 [overflow-wrap:anywhere]">{file.path}</span>
        {file.action !== "modify" && (
          <span className="text-ink-faint">{file.action === "create" ? "new" : "deleted"}</span>
        )}
        <span className="text-done">+{countOf(file.lines, "added")}</span>
        <span className="text-failed">−{countOf(file.lines, "removed")}</span>
      </figcaption>
      {shown.length > 0 && (
        <pre tabIndex={0} className="max-h-96 overflow-auto font-mono text-xs leading-[18px]">
          <code className="block w-max min-w-full">
            {shown.map((line, n) => (
              <span key={n} className={clsx("block px-2 whitespace-pre", LOOKS[line.kind])}>
                <span aria-hidden className="inline-block w-3 text-ink-faint select-none">
                  {SIGNS[line.kind]}
                </span>
                {line.text.slice(0, 2_000)}
              </span>
            ))}
          </code>
        </pre>
      )}
      {hiddenCount > 0 && (
        <p className="flex items-center gap-2 border-t border-line px-2 py-1 text-xs text-ink-dull">
          {hiddenCount.toLocaleString("en")} more lines{" "}
          {!isExpanded && <Button onClick={() => setIsExpanded(true)}>Show all</Button>}
        </p>
      )}
    </figure>
  );
}
