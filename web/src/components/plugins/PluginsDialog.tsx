import { useQuery } from "@tanstack/react-query";
import { type Plugin, pluginsQuery } from "@/api";
import { Button } from "@/components/ui/Button";
import { Tag } from "@/components/ui/Badge";
import { Dialog } from "@/components/ui/Dialog";
import { Loading } from "@/components/ui/EmptyState";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { useCanAct } from "@/useCanAct";
import { acceptsTasks, titleOfPlugin } from "@/views/plugins";
import { Message } from "@/components/ui/Message";
import { PluginReason, PluginState } from "./PluginState";

interface PluginsDialogProps {
  onClose: () => void;
  /** Open the form for a run of this plugin. */
  onRun: (name: string) => void;
}

/** The plugins of the server's machine: what each does, its state, and what is missing. */
export function PluginsDialog({ onClose, onRun }: PluginsDialogProps) {
  const query = useQuery(pluginsQuery);
  return (
    <Dialog title="Plugins" onClose={onClose}>
      {query.isPending && <Loading subject="plugins" />}
      {query.isError && <ErrorMessage error={query.error} onRetry={() => void query.refetch()} />}
      {query.data?.plugins.length === 0 && (
        <p className="text-text-2">
          <Message text="No plugins yet. `shopfloor plugins new NAME` creates one: a program of its own that accepts tasks." />
        </p>
      )}
      <ul aria-label="Plugins" className="flex flex-col divide-y divide-border empty:hidden">
        {query.data?.plugins.map((plugin) => (
          <PluginItem key={plugin.folder} plugin={plugin} onRun={onRun} />
        ))}
      </ul>
      <div className="mt-4 flex justify-end">
        <Button onClick={onClose} className="px-3 py-1.5 text-sm">
          Close
        </Button>
      </div>
    </Dialog>
  );
}

function PluginItem({ plugin, onRun }: { plugin: Plugin; onRun: (name: string) => void }) {
  const { name, version, description, tools = [], folder, status } = plugin;
  const title = titleOfPlugin(plugin);
  const canRun = useCanAct() && acceptsTasks(plugin) && status !== "not_allowed";
  return (
    <li className="flex flex-col gap-1.5 py-3 first:pt-0 last:pb-0">
      <div className="flex flex-wrap items-center gap-x-2 gap-y-1">
        <h3 className="font-semibold break-words">{title}</h3>
        {title !== name && <span className="font-mono text-xs text-text-2">{name}</span>}
        {version && <span className="text-xs text-text-3 tabular-nums">{version}</span>}
        <PluginState status={status} />
        <span className="flex-1" />
        {canRun && (
          <Button onClick={() => onRun(name)} aria-label={`New run of ${title}`}>
            New run
          </Button>
        )}
      </div>
      {description && <p className="break-words text-text-2">{description}</p>}
      <PluginReason plugin={plugin} />
      {tools.length > 0 && (
        <p className="flex flex-wrap items-center gap-1.5 text-xs text-text-2">
          Tools
          {tools.map((tool) => (
            <Tag key={tool.name} title={tool.description ?? ""}>
              {tool.name}
            </Tag>
          ))}
        </p>
      )}
      <p className="font-mono text-xs break-all text-text-3">{folder}</p>
    </li>
  );
}
