import clsx from "clsx";
import { memo, useSyncExternalStore } from "react";
import type { RunLog } from "@/api";
import { Icon } from "@/components/ui/Icon";
import { isKnownBlock, isReadable } from "@/views/events";
import { oneLine } from "@/views/json";
import { formatClock, formatDateTime, formatDuration } from "@/views/time";
import type { CallItem, TimelineItem } from "@/views/timelineRows";
import { progressText, tasksOf } from "@/views/taskList";
import { toolIcon } from "@/views/toolIcons";

interface Props {
  item: TimelineItem;
  log: RunLog;
  /** The longest duration of a call: the full width of a bar. */
  longestMs: number;
  /** Whether the address names its event. */
  isSelected: boolean;
  /** Whether the transcript shows its event now. */
  isInView: boolean;
  /** Whether Tab enters the list here; arrow keys move on. */
  isTabStop: boolean;
  onEvent: (seq: number) => void;
}

/** A line of the timeline; a click goes to its event. Memoized, so that scrolling renders only new lines. */
export const TimelineLine = memo(function TimelineLine({
  item: givenItem,
  log,
  longestMs,
  isSelected,
  isInView,
  isTabStop,
  onEvent,
}: Props) {
  const item = useLogged(givenItem, log);
  return (
    <button
      type="button"
      aria-current={isSelected || undefined}
      tabIndex={isTabStop ? 0 : -1}
      title={titleOf(item)}
      onClick={() => onEvent(item.seq)}
      className={clsx(
        "flex w-full items-center gap-1.5 pr-3 pl-2.5 text-left text-12 -outline-offset-2 hover:bg-bg-hover in-data-hovered:bg-bg-press",
        item.kind === "call" ? "h-6" : item.kind === "error" ? "min-h-6 py-0.5" : "h-[22px]",
        isSelected && "bg-accent-bg shadow-[inset_2px_0_var(--accent-line)]",
        isInView && !isSelected && "shadow-[inset_2px_0_var(--n-6)]",
      )}
    >
      <Line item={item} longestMs={longestMs} />
    </button>
  );
});

/**
 * Return the item with what only the log has, as far as it is loaded: the command line of a step that is a command, and
 * how much of a plan is done.
 */
function useLogged(item: TimelineItem, log: RunLog): TimelineItem {
  const command = useSyncExternalStore(log.subscribe, () =>
    item.kind === "status" && item.isStep ? commandOf(log, item.seq) : null,
  );
  const plan = useSyncExternalStore(log.subscribe, () => (item.kind === "call" ? planOf(log, item) : null));
  if (item.kind === "call" && plan !== null) return { ...item, name: "Plan", preview: plan };
  if (item.kind !== "status" || command === null) return item;
  const { text, isStep, ...rest } = item;
  return {
    ...rest,
    kind: "call",
    name: text,
    preview: oneLine(command),
    isSubRun: false,
    isCommand: true,
    error: null,
  };
}

/** Return the command line of a step: the message after its start has it. */
function commandOf(log: RunLog, seq: number): string | null {
  const event = log.event(seq + 1);
  if (event?.type !== "message.user" || !isReadable(event)) return null;
  const block = event.payload.blocks.find((candidate) => candidate.type === "command");
  return block?.type === "command" && isKnownBlock(block) ? block.command : null;
}

/** Return how many tasks a call has done of those that it lists; null if it lists none. */
function planOf(log: RunLog, { name, seq }: CallItem): string | null {
  const event = toolIcon(name) === "todo" ? log.event(seq) : undefined;
  const tasks = event?.type === "tool.call" && isReadable(event) ? tasksOf(name, event.payload.input) : null;
  return tasks && progressText(tasks);
}

function titleOf(item: TimelineItem): string {
  const time = formatDateTime(item.at);
  if (item.kind === "call") return [item.name, item.preview, item.error, time].filter(Boolean).join("\n");
  return item.kind === "turn" ? time : `${item.text}\n${time}`;
}

function Line({ item, longestMs }: { item: TimelineItem; longestMs: number }) {
  switch (item.kind) {
    case "call":
      return <CallLine item={item} longestMs={longestMs} />;
    case "error":
      return (
        <>
          <Icon
            name={item.isCancellation ? "cancelled" : "failed"}
            label={item.isCancellation ? "cancelled" : "error"}
            className={clsx("size-[13px] self-start mt-0.5", item.isCancellation ? "text-queued" : "text-failed")}
          />
          <span
            className={clsx(
              "line-clamp-3 min-w-0 flex-1 break-words",
              item.isCancellation ? "text-queued-text" : "text-failed-text",
            )}
          >
            {item.text}
          </span>
        </>
      );
    default:
      return (
        <span className="flex min-w-0 flex-1 items-center gap-1.5 text-11 text-text-3">
          <span className="truncate">{item.kind === "turn" ? `Turn ${item.number}` : item.text}</span>
          <span aria-hidden>·</span>
          <time dateTime={item.at} title={formatDateTime(item.at)} className="shrink-0 tabular-nums">
            {formatClock(item.at)}
          </time>
          <i aria-hidden className="h-px min-w-2 flex-1 bg-border" />
          {item.kind === "status" && item.durationMs !== null && (
            <span className="shrink-0 tabular-nums">{formatDuration(item.durationMs)}</span>
          )}
        </span>
      );
  }
}

const iconOf = (item: CallItem) => (item.isSubRun ? "agent" : item.isCommand ? "term" : toolIcon(item.name));

function CallLine({ item, longestMs }: { item: CallItem; longestMs: number }) {
  const isFailed = item.ending === "failed";
  const isOpen = item.ending === null;
  return (
    <>
      <Icon
        name={isFailed ? "failed" : item.ending === "cancelled" ? "cancelled" : iconOf(item)}
        label={item.ending ?? "started"}
        className={clsx("size-[13px]", isFailed ? "text-failed" : isOpen ? "text-running" : "text-icon")}
      />
      <span className={clsx("max-w-24 shrink-0 truncate", isFailed && "text-failed-text")}>{item.name}</span>
      <span
        className={clsx(
          "min-w-0 flex-1 truncate font-mono text-11",
          item.error !== null && item.preview === "" ? "text-failed-text" : "text-text-3",
        )}
      >
        {item.preview || item.error}
      </span>
      <span aria-hidden className="h-1 w-11 shrink-0 rounded-[2px] bg-n-4">
        <i
          className={clsx(
            "block h-1 min-w-0.5 rounded-[2px]",
            isFailed ? "bg-failed" : isOpen ? "bg-running" : "bg-n-8",
          )}
          style={{ width: `${isOpen ? 100 : Math.min(100, ((item.durationMs ?? 0) / longestMs) * 100)}%` }}
        />
      </span>
      <span className="w-11 shrink-0 text-right text-11 text-text-3 tabular-nums">
        {item.durationMs === null ? "" : formatDuration(item.durationMs)}
      </span>
    </>
  );
}
