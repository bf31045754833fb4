import clsx from "clsx";
import { type MouseEvent, memo } from "react";
import type { Run } from "@/api";
import { StatusBadge } from "@/components/ui/Badge";
import { Highlighted } from "@/components/ui/Highlighted";
import { TimeAgo, Duration } from "@/components/ui/Time";
import { costOf } from "@/views/amounts";
import { MAX_INDENT, taskHits } from "@/views/runRows";

/** No card shows more of a task. */
const TASK_CHARS = 400;
/** In a narrow column, the owner matters more than duration and cost. */
const WIDE_ONLY_CLASS = "hidden @min-[21rem]:inline";

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
  /** Whether the list is a tree, with sub-runs below their run. */
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
  const { task, snippetRest } = taskHits(run);
  return (
    <div
      className={clsx("flex h-full border-b border-line", isSelected ? "bg-app-selected" : "hover:bg-app-hover")}
      style={depth ? { paddingInlineStart: `${Math.min(depth, MAX_INDENT) * 14}px` } : undefined}
    >
      {isTree && <ExpandButton run={run} isExpanded={isExpanded} isTabStop={isTabStop} onToggle={actions.onToggle} />}
      <a
        href={actions.hrefOf(run.id)}
        onClick={select}
        data-run={run.id}
        aria-current={isSelected ? "true" : undefined}
        tabIndex={isTabStop ? 0 : -1}
        draggable={false}
        className={clsx(
          "flex min-w-0 flex-1 flex-col justify-center gap-1 py-1.5 pr-3 -outline-offset-2",
          isTree ? "pl-1" : "pl-3",
        )}
      >
        <span
          title={run.task.slice(0, 1_000)}
          className="line-clamp-2 text-[13px] leading-[18px] font-medium break-words text-ink"
        >
          {!isTree && run.parent_run_id !== null && (
            <span className="text-ink-faint" title="Sub-run of another run">
              ↳{" "}
            </span>
          )}
          {run.snippet === null ? task.slice(0, TASK_CHARS) : <Highlighted text={cutTask(task)} />}
        </span>
        {snippetRest !== null && <Snippet text={snippetRest} />}
        <Facts run={run} showsOwner={showsOwner} isSelected={isSelected} />
      </a>
    </div>
  );
});

/** Cut the task, without half a highlight at its end. */
const cutTask = (task: string) => task.slice(0, TASK_CHARS).replace(/\uE000[^\uE001]*$/, "");

function ExpandButton({
  run,
  isExpanded,
  isTabStop,
  onToggle,
}: {
  run: Run;
  isExpanded: boolean;
  isTabStop: boolean;
  onToggle: (runId: string) => void;
}) {
  if (run.children === 0) return <span className="w-6 shrink-0" />;
  const label = isExpanded ? "Hide sub-runs" : "Show sub-runs";
  return (
    <button
      type="button"
      aria-label={label}
      aria-expanded={isExpanded}
      title={`${label} (${run.children})`}
      tabIndex={isTabStop ? 0 : -1}
      onClick={() => onToggle(run.id)}
      className="w-6 shrink-0 text-ink-dull -outline-offset-2 hover:text-ink"
    >
      <span aria-hidden>{isExpanded ? "▾" : "▸"}</span>
    </button>
  );
}

function Snippet({ text }: { text: string }) {
  return (
    <span className="line-clamp-2 text-xs leading-4 break-words text-ink-dull">
      <Highlighted text={text} />
    </span>
  );
}

function Facts({ run, showsOwner, isSelected }: { run: Run; showsOwner: boolean; isSelected: boolean }) {
  const cost = costOf(run);
  return (
    <span
      className={clsx(
        "flex items-center gap-2 text-xs leading-[18px] whitespace-nowrap tabular-nums",
        isSelected ? "text-ink-dull" : "text-ink-faint",
      )}
    >
      <StatusBadge status={run.status} interrupted={run.interrupted} waitsFor={run.waits_for} />
      <Origin run={run} owner={showsOwner ? run.agent_id : null} />
      {run.pinned && <Pin />}
      {run.snippet !== null && run.search_stopped_at !== null && (
        <span title="This run has more text than is indexed: the search finds nothing after this event">
          searched to #{run.search_stopped_at}
        </span>
      )}
      {cost && (
        <span title={cost.full} className={WIDE_ONLY_CLASS}>
          {cost.short}
        </span>
      )}
      {run.status !== "queued" && (
        <span className={WIDE_ONLY_CLASS}>
          <Duration from={run.started_at} to={run.completed_at} ms={run.duration_ms} />
        </span>
      )}
      <TimeAgo at={run.started_at} />
    </span>
  );
}

/** The channel and the owner of a run. A long badge is truncated too, but keeps its first word. */
function Origin({ run, owner }: { run: Run; owner: string | null }) {
  const isBadgeLong = Boolean(run.waits_for?.length);
  const channel = run.channel_id === null ? null : (run.channel_name ?? run.channel_id);
  return (
    <span className={clsx("flex", isBadgeLong ? "flex-auto" : "flex-1", channel === null ? "min-w-0" : "min-w-14")}>
      <span className={clsx("flex min-w-0 gap-2", isBadgeLong ? "max-w-36" : "flex-1")}>
        {channel !== null && (
          <span
            className={clsx(
              "shrink-0 truncate",
              owner === null ? "max-w-full" : isBadgeLong ? "max-w-20" : "max-w-1/2",
            )}
            title={`Channel: ${channel}`}
          >
            {channel}
          </span>
        )}
        {owner !== null && (
          <span className="truncate" title={`Owner: ${owner}`}>
            {owner}
          </span>
        )}
      </span>
    </span>
  );
}

function Pin() {
  return (
    <svg role="img" aria-label="Pinned" viewBox="0 0 16 16" className="size-3 shrink-0 fill-current">
      <title>Pinned: kept when old runs are pruned</title>
      <path d="M5 1h6v1l-1 1v4l2 2v1H8.5v4.5L8 15.5l-.5-1V10H4V9l2-2V3L5 2z" />
    </svg>
  );
}
