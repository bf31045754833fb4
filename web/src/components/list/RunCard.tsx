import clsx from "clsx";
import { type MouseEvent, memo } from "react";
import type { Run } from "@/api";
import { StatusIcon } from "@/components/ui/Badge";
import { Message } from "@/components/ui/Message";
import { Highlighted } from "@/components/ui/Highlighted";
import { Count } from "@/components/ui/Count";
import { Icon } from "@/components/ui/Icon";
import { Age, Duration } from "@/components/ui/Time";
import { costOf } from "@/views/amounts";
import { oneLine } from "@/views/json";
import { withoutBold } from "@/views/markdown";
import { cardNote, MAX_INDENT, showsElapsed, taskHits } from "@/views/runRows";

/** The longest part of a task that a card shows. */
const TASK_CHARS = 400;
const NOTE_COLORS = { failed: "text-failed-text", waiting: "text-waiting-text" };

export interface CardActions {
  hrefOf: (runId: string) => string;
  /** `byKeys`: the card was activated with the keyboard. */
  onSelect: (runId: string, byKeys: boolean) => void;
  onToggle: (runId: string) => void;
}

interface RunCardProps {
  run: Run;
  depth: number;
  isExpanded: boolean;
  /** Whether sub-runs are below their run, and not runs of the list like all others. */
  isTree: boolean;
  isSelected: boolean;
  /** Whether the Tab key stops here. Only one card of the list is a tab stop, so that the Tab key does not visit thousands. */
  isTabStop: boolean;
  showsOwner: boolean;
  actions: CardActions;
}

/** A run in the list. Memoized, so that scrolling renders only new cards. */
export const RunCard = memo(function RunCard({
  run,
  depth,
  isExpanded,
  isTree,
  isSelected,
  isTabStop,
  showsOwner,
  actions,
}: RunCardProps) {
  const select = (event: MouseEvent) => {
    // The browser handles clicks that open a new tab or window.
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    actions.onSelect(run.id, event.detail === 0);
  };
  const hasFold = isTree && run.children > 0;
  return (
    <div
      className={clsx(
        "relative h-full",
        isSelected
          ? "bg-accent-bg before:absolute before:inset-y-0 before:left-0 before:w-0.5 before:bg-n-8 group-data-[zone=list]/zone:before:bg-accent-line"
          : "hover:bg-bg-hover",
      )}
    >
      {depth > 0 && <Rail depth={depth} />}
      <a
        href={actions.hrefOf(run.id)}
        onClick={select}
        data-run={run.id}
        aria-current={isSelected ? "true" : undefined}
        tabIndex={isTabStop ? 0 : -1}
        draggable={false}
        style={depth > 0 ? { paddingLeft: indentOf(depth) } : undefined}
        className={clsx(
          "flex h-full -outline-offset-2",
          depth > 0 ? "items-center gap-2 pr-3 text-12" : "gap-2.5 pr-3 pl-3.5",
        )}
      >
        {depth > 0 ? (
          <SubRunLine run={run} hasFold={hasFold} />
        ) : (
          <CardLines run={run} isTree={isTree} hasFold={hasFold} showsOwner={showsOwner} />
        )}
      </a>
      {hasFold && (
        // The same line as in the link, with only the button in sight: a link cannot contain a button.
        <span
          className={clsx(
            "pointer-events-none absolute right-3 flex items-center gap-2 text-12 leading-[17px] tabular-nums",
            depth > 0 ? "inset-y-0" : "bottom-[7px] coarse:bottom-[11px]",
          )}
        >
          <FoldButton run={run} isExpanded={isExpanded} onToggle={actions.onToggle} />
          <span aria-hidden className="invisible empty:hidden">
            {depth > 0 ? <SubRunTime run={run} /> : costOf(run)?.short}
          </span>
        </span>
      )}
    </div>
  );
});

const indentOf = (depth: number) => 40 + (Math.min(depth, MAX_INDENT) - 1) * 16;

/** The line that connects a sub-run with its run. */
function Rail({ depth }: { depth: number }) {
  const left = indentOf(depth) - 18.5;
  return (
    <>
      <i aria-hidden className="absolute inset-y-0 w-px bg-n-6" style={{ left }} />
      <i aria-hidden className="absolute top-1/2 h-px w-2.5 bg-n-6" style={{ left }} />
    </>
  );
}

function SubRunLine({ run, hasFold }: { run: Run; hasFold: boolean }) {
  return (
    <>
      <StatusIcon status={run.status} interrupted={run.interrupted} waitsFor={run.waits_for} className="size-[13px]" />
      <span title={run.task.slice(0, 1_000)} className="min-w-0 flex-1 truncate text-text-2">
        {run.task.slice(0, TASK_CHARS) || run.name}
      </span>
      {hasFold && <FoldCount run={run} isExpanded={false} className="invisible" />}
      <span className="text-text-3 tabular-nums">
        <SubRunTime run={run} />
      </span>
    </>
  );
}

interface LinesProps {
  run: Run;
  isTree: boolean;
  hasFold: boolean;
  showsOwner: boolean;
}

function CardLines({ run, isTree, hasFold, showsOwner }: LinesProps) {
  const { task, snippetRest } = taskHits(run);
  const note = cardNote(run, showsOwner ? run.agent_id : null);
  const cost = costOf(run);
  return (
    <>
      <span className="flex pt-4 coarse:pt-5">
        <StatusIcon status={run.status} interrupted={run.interrupted} waitsFor={run.waits_for} />
      </span>
      <span className="flex min-w-0 flex-1 flex-col justify-center border-b border-border">
        <span className="flex items-center gap-2 leading-[18px]">
          <span title={run.task.slice(0, 1_000)} className="min-w-0 flex-1 truncate font-medium">
            {!isTree && run.parent_run_id !== null && (
              <span className="text-text-3" title="Sub-run of another run">
                ↳{" "}
              </span>
            )}
            {run.snippet === null ? task.slice(0, TASK_CHARS) || run.name : <Highlighted text={cutTask(task)} />}
          </span>
          {run.pinned && <Icon name="pin" label="Pinned" className="size-3 text-icon" />}
          <span className="text-12 text-text-3 tabular-nums">
            <Elapsed run={run} />
          </span>
        </span>
        {snippetRest !== null && <Snippet text={snippetRest} />}
        <span className="flex items-center gap-2 text-12 leading-[17px] text-text-3 tabular-nums">
          <span title={note.text} className={clsx("min-w-0 flex-1 truncate", note.tone && NOTE_COLORS[note.tone])}>
            <NoteText text={note.text} code={oneLine(run.activity?.preview ?? "")} />
          </span>
          {run.snippet !== null && run.search_stopped_at !== null && (
            <span title="This run has more text than is indexed: the search finds nothing after this event">
              searched to #{run.search_stopped_at}
            </span>
          )}
          {hasFold && <FoldCount run={run} isExpanded={false} className="invisible" />}
          {cost && <span title={cost.full}>{cost.short}</span>}
        </span>
      </span>
    </>
  );
}

/** The second line of a card. `code` is the part of it that is a command, a path or another input of a tool. */
function NoteText({ text, code }: { text: string; code: string }) {
  const start = code ? text.indexOf(code) : -1;
  // The command of an approval is shown as it is.
  if (start < 0) return text.startsWith("approval of ") ? text : <Message text={withoutBold(text)} />;
  return (
    <>
      {text.slice(0, start)}
      <code className="text-11">{code}</code>
      {text.slice(start + code.length)}
    </>
  );
}

/** How long an active run has taken, or how long ago the run started. */
function Elapsed({ run }: { run: Run }) {
  return showsElapsed(run) ? <Duration from={run.started_at} to={null} ms={null} /> : <Age at={run.started_at} />;
}

/** How long a sub-run took; until it has started, how long it has been there. */
function SubRunTime({ run }: { run: Run }) {
  return run.status === "queued" ? (
    <Age at={run.started_at} />
  ) : (
    <Duration from={run.started_at} to={run.completed_at} ms={run.duration_ms} />
  );
}

/** Cut the task, without half a highlight at its end. */
const cutTask = (task: string) => task.slice(0, TASK_CHARS).replace(/\uE000[^\uE001]*$/, "");

interface FoldProps {
  run: Run;
  isExpanded: boolean;
  onToggle: (runId: string) => void;
}

/** The number of sub-runs, which shows or hides them. Arrow keys do the same, so that the Tab key has one stop. */
function FoldButton({ run, isExpanded, onToggle }: FoldProps) {
  const label = isExpanded ? "Hide sub-runs" : "Show sub-runs";
  return (
    <button
      type="button"
      aria-label={label}
      aria-expanded={isExpanded}
      title={`${label} (${run.children.toLocaleString("en")})`}
      tabIndex={-1}
      onClick={() => onToggle(run.id)}
      // Fingers press around it, too.
      className="group/fold pointer-events-auto relative coarse:before:absolute coarse:before:-inset-3"
    >
      <FoldCount run={run} isExpanded={isExpanded} className="group-hover/fold:bg-n-6" />
    </button>
  );
}

function FoldCount({ run, isExpanded, className }: { run: Run; isExpanded: boolean; className: string }) {
  return (
    <span
      className={clsx(
        "flex h-[17px] items-center gap-0.5 rounded-1 bg-n-4 pr-1.5 pl-0.5 text-11 text-text-2 tabular-nums",
        className,
      )}
    >
      <Icon name={isExpanded ? "down" : "right"} className="size-[11px] stroke-[2.25]" />
      <Count text={run.children > 999 ? "999+" : String(run.children)} />
    </span>
  );
}

function Snippet({ text }: { text: string }) {
  return (
    <span className="line-clamp-2 text-12 leading-[17px] break-words text-text-2">
      <Highlighted text={text} />
    </span>
  );
}
