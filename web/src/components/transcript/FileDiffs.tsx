import clsx from "clsx";
import { useMemo } from "react";
import { Button } from "@/components/ui/Button";
import { Code } from "@/components/ui/Code";
import { countOf, type DiffLine, type FileDiff, numbered } from "@/views/diff";
import { languageOf } from "@/views/highlight";
import { RowStatePart, useRowState } from "./rowState";

const INITIAL_LINES = 400;
const MAX_LINES = 5_000;
const LINE_CHARS = 2_000;
const LOOKS: Record<DiffLine["kind"], { line: string; gutter: string; sign: string }> = {
  same: { line: "", gutter: "text-text-3", sign: " " },
  added: { line: "bg-add-bg", gutter: "bg-add-gutter text-done-text", sign: "+" },
  removed: { line: "bg-del-bg", gutter: "bg-del-gutter text-failed-text", sign: "-" },
  hunk: { line: "bg-bg-sunken text-text-3", gutter: "", sign: " " },
};

/** Diffs of changed files. */
export function FileDiffs({ files }: { files: readonly FileDiff[] }) {
  return files.map((file, n) => (
    <RowStatePart key={n} name={file.path}>
      <FileDiffView file={file} />
    </RowStatePart>
  ));
}

function FileDiffView({ file }: { file: FileDiff }) {
  const [isExpanded, setIsExpanded] = useRowState("expanded", false);
  const lines = useMemo(() => numbered(file.lines), [file.lines]);
  const shown = lines.slice(0, isExpanded ? MAX_LINES : INITIAL_LINES);
  const hiddenCount = file.lines.length - shown.length;
  const language = languageOf(file.path);
  const hasNumbers = lines.some((line) => line.number !== null);
  return (
    <figure className="overflow-hidden not-first:border-t not-first:border-border">
      <figcaption className="flex items-baseline gap-2 border-b border-border bg-bg-side px-3 py-0.5 font-mono text-[11.5px]">
        <span className="min-w-0 flex-1 [overflow-wrap:anywhere]">{file.path}</span>
        {file.action !== "modify" && (
          <span className="text-text-3">{file.action === "create" ? "new" : "deleted"}</span>
        )}
        <span className="text-done-text">+{countOf(file.lines, "added")}</span>
        <span className="text-failed-text">−{countOf(file.lines, "removed")}</span>
      </figcaption>
      {shown.length > 0 && (
        <pre tabIndex={0} className="thin-scroll max-h-96 overflow-auto font-mono text-[11.5px] leading-[18px]">
          <code className="block w-max min-w-full">
            {shown.map((line, n) => (
              <span key={n} className={clsx("flex whitespace-pre", LOOKS[line.kind].line)}>
                <span aria-hidden className={clsx("flex shrink-0 select-none", LOOKS[line.kind].gutter)}>
                  {hasNumbers && <span className="w-9 pr-2 text-right">{line.number}</span>}
                  <span className="w-[18px] text-center">{LOOKS[line.kind].sign}</span>
                </span>
                <span className="px-1">
                  <Code text={line.text.slice(0, LINE_CHARS)} language={line.kind === "hunk" ? null : language} />
                </span>
              </span>
            ))}
          </code>
        </pre>
      )}
      {hiddenCount > 0 && (
        <p className="flex items-center gap-2 border-t border-border px-2 py-1 text-12 text-text-2">
          {hiddenCount.toLocaleString("en")} more lines{" "}
          {!isExpanded && <Button onClick={() => setIsExpanded(() => true)}>Show all</Button>}
        </p>
      )}
    </figure>
  );
}
