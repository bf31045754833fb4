import clsx from "clsx";
import { type ReactNode, useState } from "react";
import { artifactUrl, type RunDetail } from "@/api";
import { Message } from "@/components/ui/Message";
import { Text } from "@/components/transcript/Text";
import { StatusSign } from "@/components/ui/Badge";
import { CopyButton } from "@/components/ui/CopyButton";
import { Icon } from "@/components/ui/Icon";
import { Markdown } from "@/components/ui/Markdown";
import { formatBytes } from "@/views/amounts";
import { activityOf, isActive, viewOfResult } from "@/views/detail";
import { oneLine } from "@/views/json";
import { withoutMarks } from "@/views/markdown";
import { LINK_CLASS } from "./links";

/** How many lines of a command's output are shown at first. */
const LAST_LINES = 6;
const PREVIEW_CHARS = 1_000;
const LINE_CLASS = "flex h-8 shrink-0 items-center gap-2 border-b border-border px-5 text-12 max-md:px-4";

interface Props {
  run: RunDetail;
  /** Whether the run had ended when the page opened it, and its transcript does not end with the result. */
  isOpenAtFirst: boolean;
  /** What is at the right of the line. */
  aside: ReactNode;
}

/**
 * One line above the transcript: what an active run does, later its result or its error. It has the same height before
 * and after, so that nothing moves when the run ends.
 */
export function ResultLine({ run, isOpenAtFirst, aside }: Props) {
  const [isOpen, setIsOpen] = useState(isOpenAtFirst);
  if (isActive(run.status)) return <ActivityLine run={run}>{aside}</ActivityLine>;
  const isFailed = run.status === "failed";
  return (
    <section aria-label="Result" className={clsx("shrink-0", isOpen && "border-b border-border")}>
      <div
        className={clsx(
          LINE_CLASS,
          isOpen && "border-b-0",
          isFailed ? "bg-failed-bg" : run.status === "done" ? "bg-done-bg" : "bg-bg-sunken",
        )}
      >
        <button
          type="button"
          aria-expanded={isOpen}
          onClick={() => setIsOpen(!isOpen)}
          className="-ml-2 flex h-7 min-w-0 flex-1 items-center gap-2 rounded-1 px-2 text-left -outline-offset-2"
        >
          <Icon name={isOpen ? "down" : "right"} className="size-3 text-icon" />
          <h2
            className={clsx(
              "font-semibold",
              isFailed ? "text-failed-text" : run.status === "done" ? "text-done-text" : "text-text-2",
            )}
          >
            {isFailed ? "Failed" : run.status === "cancelled" ? "Cancelled" : "Result"}
          </h2>
          <span className={clsx("min-w-0 flex-1 truncate", isFailed ? "text-failed-text" : "text-text-2")}>
            {isFailed ? <Message text={previewOf(run)} /> : previewOf(run)}
          </span>
          {isFailed && run.error?.code != null && (
            <span className="font-mono text-11 text-failed-text max-md:hidden">{run.error.code}</span>
          )}
        </button>
        {aside}
        {run.result !== null && <CopyButton text={run.result} icon="copy" label="Copy" title="Copy the result" />}
      </div>
      {isOpen && <ResultBody run={run} />}
    </section>
  );
}

/** Return the result or the error on one line; of a command's output, the last line. */
function previewOf({ status, error, result, kind, artifacts }: RunDetail): string {
  if (status === "failed") return oneLine(error?.message ?? "The run failed without an error message.", PREVIEW_CHARS);
  if (status === "cancelled") return oneLine(error?.message ?? "This run was cancelled.", PREVIEW_CHARS);
  const names = artifacts.length > 0 ? ` · ${artifacts.map(({ name }) => name).join(", ")}` : "";
  if (!result) return `This run has no result.${names}`;
  const text = kind === "command" ? (result.trimEnd().split("\n").at(-1) ?? "") : result;
  return oneLine(withoutMarks(text.slice(0, PREVIEW_CHARS * 4)), PREVIEW_CHARS) + names;
}

function ActivityLine({ run, children }: { run: RunDetail; children: ReactNode }) {
  return (
    <div className={clsx(LINE_CLASS, "bg-bg-side text-text-2")}>
      <StatusSign status={run.status} interrupted={run.interrupted} className="size-3.5" />
      <span className="font-medium capitalize">{run.interrupted ? "interrupted" : run.status}</span>
      <span className="min-w-0 flex-1 truncate">{activityOf(run)}</span>
      {children}
    </div>
  );
}

function ResultBody({ run }: { run: RunDetail }) {
  const { result, status, error } = run;
  return (
    <div tabIndex={0} className="thin-scroll max-h-[40dvh] overflow-y-auto px-5 py-2 max-md:px-4">
      {status === "failed" && <Failure error={error} />}
      {status === "cancelled" && (
        <p className="break-words text-text-2">This run was cancelled{error?.message ? `: ${error.message}` : "."}</p>
      )}
      {result !== null && result !== "" && <ResultText result={result} kind={run.kind} />}
      {status === "done" && !result && <p className="text-text-3">This run has no result.</p>}
      {run.artifacts.length > 0 && <Artifacts run={run} />}
    </div>
  );
}

function Artifacts({ run }: { run: RunDetail }) {
  return (
    <ul aria-label="Artifacts" className="mt-1 flex flex-wrap gap-x-4 gap-y-1 text-12">
      {run.artifacts.map(({ name, size_bytes: size }) => (
        <li key={name} className="break-all">
          {size === null ? (
            <span title="The plugin has this file">{name}</span>
          ) : (
            <a href={artifactUrl(run.id, name)} download={name} className={LINK_CLASS}>
              {name}
            </a>
          )}
          {size !== null && <span className="ml-1 text-text-3">{formatBytes(size)}</span>}
        </li>
      ))}
    </ul>
  );
}

function Failure({ error }: { error: RunDetail["error"] }) {
  return (
    <div className="mb-1 max-w-(--prose-w) text-failed-text">
      <p className="break-words whitespace-pre-wrap">
        <Message text={error?.message ?? "The run failed without an error message."} />
      </p>
      {error?.code != null && <p className="mt-0.5 font-mono text-12">{error.code}</p>}
      {error?.hint !== undefined && (
        <p className="mt-1 break-words text-text">
          Hint: <Message text={error.hint} />
        </p>
      )}
    </div>
  );
}

function ResultText({ result, kind }: { result: string; kind: string }) {
  const view = viewOfResult(result, kind);
  if (view.as === "markdown")
    return (
      <div className="max-w-(--prose-w) text-14/(--lh-prose)">
        <Markdown text={view.text} />
      </div>
    );
  return <Text text={view.text} isWide lastLines={kind === "command" ? LAST_LINES : undefined} />;
}
