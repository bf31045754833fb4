import clsx from "clsx";
import { useRef, useState } from "react";
import { artifactUrl, type RunDetail } from "@/api";
import { Text } from "@/components/transcript/Text";
import { CopyButton } from "@/components/ui/CopyButton";
import { Markdown } from "@/components/ui/Markdown";
import { formatBytes } from "@/views/amounts";
import { viewOfResult } from "@/views/detail";
import { LINK_CLASS } from "./links";
import { useIsOverflowing } from "./useIsOverflowing";

/** How many lines of a command's output are shown at first. */
const LAST_LINES = 6;

/** The result of an ended run, or its error. */
export function Result({ run }: { run: RunDetail }) {
  const { result, status, error } = run;
  return (
    <section aria-label="Result" className="shrink-0 px-3 py-2 @3xl:px-4">
      <div className="flex items-center">
        <h2 className="flex-1 text-xs font-semibold text-ink-dull">Result</h2>
        {result !== null && <CopyButton text={result} label="Copy" title="Copy the result" />}
      </div>
      {status === "failed" && <Failure error={error} />}
      {status === "cancelled" && (
        <p className="mt-1 break-words text-ink-dull">
          This run was cancelled{error?.message ? `: ${error.message}` : "."}
        </p>
      )}
      {result !== null && result !== "" && <ResultText result={result} kind={run.kind} />}
      {status === "done" && !result && <p className="mt-1 text-ink-faint">This run has no result.</p>}
      {run.artifacts.length > 0 && <Artifacts run={run} />}
    </section>
  );
}

function Artifacts({ run }: { run: RunDetail }) {
  return (
    <ul aria-label="Artifacts" className="mt-1 flex flex-wrap gap-x-4 gap-y-1 text-xs">
      {run.artifacts.map(({ name, size_bytes: size }) => (
        <li key={name} className="break-all">
          {size === null ? (
            <span title="The plugin has this file">{name}</span>
          ) : (
            <a href={artifactUrl(run.id, name)} download={name} className={LINK_CLASS}>
              {name}
            </a>
          )}
          {size !== null && <span className="ml-1 text-ink-faint">{formatBytes(size)}</span>}
        </li>
      ))}
    </ul>
  );
}

function Failure({ error }: { error: RunDetail["error"] }) {
  return (
    <div className="my-1 rounded border-l-2 border-failed bg-failed-back px-2.5 py-1.5 text-failed">
      <p tabIndex={0} className="max-h-40 overflow-y-auto break-words whitespace-pre-wrap">
        {error?.message ?? "The run failed without an error message."}
      </p>
      {error?.code != null && <p className="mt-0.5 font-mono text-xs">{error.code}</p>}
      {error?.hint !== undefined && <p className="mt-1 break-words text-ink">Hint: {error.hint}</p>}
    </div>
  );
}

function ResultText({ result, kind }: { result: string; kind: string }) {
  const boxRef = useRef<HTMLDivElement>(null);
  const [isExpanded, setIsExpanded] = useState(false);
  const isOverflowing = useIsOverflowing(boxRef);
  const view = viewOfResult(result, kind);
  if (kind === "command") {
    return (
      <div className="mt-1 max-h-[50dvh] overflow-y-auto rounded bg-app-side p-2" tabIndex={0}>
        <Text text={view.text} isWide lastLines={LAST_LINES} />
      </div>
    );
  }
  return (
    <>
      <div
        ref={boxRef}
        className={clsx(
          "mt-1",
          !isExpanded && "max-h-[17dvh] min-h-6 overflow-hidden",
          isOverflowing && !isExpanded && "mask-b-from-70%",
        )}
      >
        {view.as === "markdown" ? (
          <Markdown text={view.text} />
        ) : (
          <div className="rounded bg-app-side p-2">
            <Text text={view.text} isWide />
          </div>
        )}
      </div>
      {(isOverflowing || isExpanded) && (
        <button
          type="button"
          aria-expanded={isExpanded}
          onClick={() => setIsExpanded(!isExpanded)}
          className="mt-1 text-xs text-accent hover:underline"
        >
          {isExpanded ? "Show less" : "Show all"}
        </button>
      )}
    </>
  );
}
