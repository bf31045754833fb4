import clsx from "clsx";
import { type MouseEvent, memo } from "react";
import type { Run } from "@/api";
import { StatusBadge } from "@/parts/ui/Badge";
import { Marked } from "@/parts/ui/Marked";
import { Ago, Took } from "@/parts/ui/Now";
import { costOf } from "@/views/amounts";
import { DEEPEST } from "@/views/tree";

export interface CardActions {
  hrefOf: (runId: string) => string;
  /** `byKeys`: the card was not clicked but entered. */
  onChoose: (runId: string, byKeys: boolean) => void;
  onToggle: (runId: string) => void;
}

interface CardProps {
  run: Run;
  depth: number;
  opened: boolean;
  /** Whether what it called can be shown below it. */
  inTree: boolean;
  isChosen: boolean;
  /** Whether the Tab key comes here: of all cards it does to one, so that nobody has to pass thousands. */
  isStop: boolean;
  showsOwner: boolean;
  actions: CardActions;
}

/** A run in the list. Memoised: while the list is scrolled, only what comes into sight is drawn. */
export const Card = memo(function Card({ run, depth, opened, inTree, isChosen, isStop, showsOwner, actions }: CardProps) {
  const choose = (event: MouseEvent) => {
    // A click for a new tab or window is the browser's.
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    actions.onChoose(run.id, event.detail === 0);
  };
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
        className={clsx("flex min-w-0 flex-1 flex-col justify-center gap-1 py-1.5 pr-3 -outline-offset-2", inTree ? "pl-1" : "pl-3")}
      >
        <span title={run.task.slice(0, 1_000)} className="line-clamp-2 text-[13px] leading-[18px] font-medium break-words text-ink">
          {!inTree && run.parent_run_id !== null && (
            <span className="text-ink-faint" title="Called by another run">
              ↳{" "}
            </span>
          )}
          {run.task.slice(0, 400)}
        </span>
        {run.snippet !== null && <Snippet text={run.snippet} />}
        <Facts run={run} showsOwner={showsOwner} isChosen={isChosen} />
      </a>
    </div>
  );
});

function Arrow({ run, opened, isStop, onToggle }: { run: Run; opened: boolean; isStop: boolean; onToggle: (runId: string) => void }) {
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
    <span className={clsx("flex items-center gap-2 text-xs leading-[18px] whitespace-nowrap tabular-nums", isChosen ? "text-ink-dull" : "text-ink-faint")}>
      <StatusBadge status={run.status} waitsFor={run.waits_for} framed={isChosen} />
      {/* Of a long badge the end is cut before where the run came from cannot be read any more. */}
      <span className={clsx("flex flex-1 gap-2", run.channel_id === null ? "min-w-0" : "min-w-14")}>
        {run.channel_id !== null && (
          <span className={clsx("shrink-0 truncate", showsOwner ? "max-w-3/4" : "max-w-full")} title={`Channel: ${run.channel_name ?? run.channel_id}`}>
            {run.channel_name ?? run.channel_id}
          </span>
        )}
        {showsOwner && run.agent_id !== null && (
          <span className="truncate" title={`Owner: ${run.agent_id}`}>
            {run.agent_id}
          </span>
        )}
      </span>
      {run.pinned && <Pin />}
      {cost && <span title={cost.whole}>{cost.short}</span>}
      {run.status !== "queued" && <Took from={run.started_at} to={run.completed_at} ms={run.duration_ms} />}
      <Ago at={run.started_at} />
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
