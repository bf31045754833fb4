import clsx from "clsx";
import { type MouseEvent, memo } from "react";
import type { Run } from "@/api";
import { StatusBadge } from "@/components/ui/Badge";
import { Marked } from "@/components/ui/Highlighted";
import { Ago, Took } from "@/components/ui/Time";
import { costOf } from "@/views/amounts";
import { DEEPEST, foundIn } from "@/views/runRows";

/** No card shows more of a task. */
const TASK_CHARS = 400;
/** In a narrow column, the owner matters more than duration and cost. */
const IF_ROOM = "hidden @min-[21rem]:inline";

export interface CardActions {
  hrefOf: (runId: string) => string;
  /** `byKeys`: the card was activated with the keyboard. */
  onChoose: (runId: string, byKeys: boolean) => void;
  onToggle: (runId: string) => void;
}

interface CardProps {
  run: Run;
  depth: number;
  opened: boolean;
  /** Whether the list is a tree, with sub-runs below their run. */
  inTree: boolean;
  isChosen: boolean;
  /** Whether the Tab key stops here. Only one card of the list is a tab stop, so that nobody tabs through thousands. */
  isStop: boolean;
  showsOwner: boolean;
  actions: CardActions;
}

/** A run in the list. Memoized, so that scrolling renders only new cards. */
export const Card = memo(function Card({
  run,
  depth,
  opened,
  inTree,
  isChosen,
  isStop,
  showsOwner,
  actions,
}: CardProps) {
  const choose = (event: MouseEvent) => {
    // The browser handles clicks that open a new tab or window.
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    actions.onChoose(run.id, event.detail === 0);
  };
  const { task, beyond } = foundIn(run);
  return (
    <div
      className={clsx("flex h-full border-b border-line", isChosen ? "bg-app-selected" : "hover:bg-app-hover")}
      style={depth ? { paddingInlineStart: `${Math.min(depth, DEEPEST) * 14}px` } : undefined}
    >
      {inTree && <Arrow run={run} opened={opened} isStop={isStop} onToggle={actions.onToggle} />}
      <a
        href={actions.hrefOf(run.id)}
        onClick={choose}
        data-run={run.id}
        aria-current={isChosen ? "true" : undefined}
        tabIndex={isStop ? 0 : -1}
        draggable={false}
        className={clsx(
          "flex min-w-0 flex-1 flex-col justify-center gap-1 py-1.5 pr-3 -outline-offset-2",
          inTree ? "pl-1" : "pl-3",
        )}
      >
        <span
          title={run.task.slice(0, 1_000)}
          className="line-clamp-2 text-[13px] leading-[18px] font-medium break-words text-ink"
        >
          {!inTree && run.parent_run_id !== null && (
            <span className="text-ink-faint" title="Called by another run">
              ↳{" "}
            </span>
          )}
          {run.snippet === null ? task.slice(0, TASK_CHARS) : <Marked text={cut(task)} />}
        </span>
        {beyond !== null && <Snippet text={beyond} />}
        <Facts run={run} showsOwner={showsOwner} isChosen={isChosen} />
      </a>
    </div>
  );
});

/** Cut the task, without half a highlight at its end. */
const cut = (task: string) => task.slice(0, TASK_CHARS).replace(/\uE000[^\uE001]*$/, "");

function Arrow({
  run,
  opened,
  isStop,
  onToggle,
}: {
  run: Run;
  opened: boolean;
  isStop: boolean;
  onToggle: (runId: string) => void;
}) {
  if (run.children === 0) return <span className="w-6 shrink-0" />;
  const label = opened ? "Hide sub-runs" : "Show sub-runs";
  return (
    <button
      type="button"
      aria-label={label}
      aria-expanded={opened}
      title={`${label} (${run.children})`}
      tabIndex={isStop ? 0 : -1}
      onClick={() => onToggle(run.id)}
      className="w-6 shrink-0 text-ink-dull -outline-offset-2 hover:text-ink"
    >
      <span aria-hidden>{opened ? "▾" : "▸"}</span>
    </button>
  );
}

function Snippet({ text }: { text: string }) {
  return (
    <span className="line-clamp-2 text-xs leading-4 break-words text-ink-dull">
      <Marked text={text} />
    </span>
  );
}

function Facts({ run, showsOwner, isChosen }: { run: Run; showsOwner: boolean; isChosen: boolean }) {
  const cost = costOf(run);
  return (
    <span
      className={clsx(
        "flex items-center gap-2 text-xs leading-[18px] whitespace-nowrap tabular-nums",
        isChosen ? "text-ink-dull" : "text-ink-faint",
      )}
    >
      <StatusBadge status={run.status} interrupted={run.interrupted} waitsFor={run.waits_for} framed={isChosen} />
      <Names run={run} owner={showsOwner ? run.agent_id : null} />
      {run.pinned && <Pin />}
      {run.snippet !== null && run.search_stopped_at !== null && (
        <span title="It has more text than is indexed: what comes after this event is not found">
          searched to #{run.search_stopped_at}
        </span>
      )}
      {cost && (
        <span title={cost.whole} className={IF_ROOM}>
          {cost.short}
        </span>
      )}
      {run.status !== "queued" && (
        <span className={IF_ROOM}>
          <Took from={run.started_at} to={run.completed_at} ms={run.duration_ms} />
        </span>
      )}
      <Ago at={run.started_at} />
    </span>
  );
}

/** The channel and the owner of a run. A long badge is truncated too, but keeps its first word. */
function Names({ run, owner }: { run: Run; owner: string | null }) {
  const badgeIsLong = Boolean(run.waits_for?.length);
  const channel = run.channel_id === null ? null : (run.channel_name ?? run.channel_id);
  return (
    <span className={clsx("flex", badgeIsLong ? "flex-auto" : "flex-1", channel === null ? "min-w-0" : "min-w-14")}>
      <span className={clsx("flex min-w-0 gap-2", badgeIsLong ? "max-w-36" : "flex-1")}>
        {channel !== null && (
          <span
            className={clsx(
              "shrink-0 truncate",
              owner === null ? "max-w-full" : badgeIsLong ? "max-w-20" : "max-w-1/2",
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
