import clsx from "clsx";
import type { Plugin } from "@/api";
import { CopyButton } from "@/components/ui/CopyButton";
import { Message } from "@/components/ui/Message";
import { messageParts, STATE_LABELS, stateReason } from "@/views/plugins";

/** Color is for a plugin that works or needs the user. */
const COLORS: Record<Plugin["status"], string> = {
  ready: "text-done-text",
  starting: "text-running-text",
  stopped: "text-queued-text",
  error: "text-failed-text",
  not_allowed: "text-waiting-text",
};

/** The state of a plugin in a word. */
export function PluginState({ status }: { status: Plugin["status"] }) {
  return (
    <span
      data-status={status}
      className={clsx("inline-flex items-center gap-1.5 text-xs font-medium whitespace-nowrap", COLORS[status])}
    >
      <span
        aria-hidden
        className={clsx(
          "size-1.5 rounded-full",
          status === "stopped" ? "ring-1 ring-current" : "bg-current",
          status === "starting" && "animate-pulse",
        )}
      />
      {STATE_LABELS[status]}
    </span>
  );
}

/** Why the plugin is in its state, with the command that helps. */
export function PluginReason({ plugin }: { plugin: Plugin }) {
  const reason = stateReason(plugin);
  if (reason === null) return null;
  const command = plugin.error ? messageParts(reason).find(({ isCode }) => isCode)?.text : undefined;
  return (
    <div className="flex items-start gap-2 text-xs">
      <p className={clsx("min-w-0 flex-1 [overflow-wrap:anywhere] whitespace-pre-wrap", COLORS[plugin.status])}>
        <Message text={reason} />
      </p>
      {command !== undefined && <CopyButton text={command} label="Copy command" title={command} />}
    </div>
  );
}
