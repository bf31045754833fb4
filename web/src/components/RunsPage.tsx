import clsx from "clsx";
import { useState } from "react";
import { Detail } from "@/components/detail/Detail";
import { NewRunDialog } from "@/components/dispatch/NewRunDialog";
import { rememberWorker } from "@/components/dispatch/WorkerSelect";
import { HelpDialog } from "@/components/HelpDialog";
import { RunList } from "@/components/list/RunList";
import { PluginsDialog } from "@/components/plugins/PluginsDialog";
import { TopBar } from "@/components/TopBar";
import { EmptyState } from "@/components/ui/EmptyState";
import { enterZone, useShortcuts } from "@/shortcuts";
import { useChangeAddress, useAddress } from "@/useAddress";
import { selectRun } from "@/views/addressParameters";

/** Screens with room for one column only. */
const NARROW = "(width < 48rem)";

/** The page: the list of runs on the left, the selected run on the right. A narrow screen shows one of them. */
export function RunsPage() {
  const address = useAddress();
  const changeAddress = useChangeAddress();
  const [openDialog, setOpenDialog] = useState<"help" | "dispatch" | "plugins" | null>(null);
  useShortcuts("page", {
    "?": () => setOpenDialog("help"),
    n: () => setOpenDialog("dispatch"),
    p: () => setOpenDialog("plugins"),
    Escape: () => {
      enterZone("list");
      if (matchMedia(NARROW).matches) changeAddress(selectRun());
    },
  });
  const selectedId = address.worker;
  return (
    <div className="flex h-dvh flex-col">
      <TopBar
        onDispatch={() => setOpenDialog("dispatch")}
        onHelp={() => setOpenDialog("help")}
        onPlugins={() => setOpenDialog("plugins")}
      />
      <main className="flex min-h-0 flex-1">
        {!selectedId && <h1 className="sr-only">Runs</h1>}
        <section
          aria-label="Runs"
          onPointerDownCapture={() => enterZone("list")}
          onFocusCapture={() => enterZone("list")}
          className={clsx(
            "min-h-0 w-full shrink-0 flex-col border-r border-line bg-app-side @container md:flex md:w-80 lg:w-88 xl:w-96",
            selectedId ? "hidden" : "flex",
          )}
        >
          <RunList />
        </section>
        <section
          aria-label="Selected run"
          onPointerDownCapture={() => enterZone("detail")}
          onFocusCapture={() => enterZone("detail")}
          className={clsx("min-h-0 min-w-0 flex-1 flex-col md:flex", selectedId ? "flex" : "hidden")}
        >
          {selectedId ? (
            <Detail key={selectedId} runId={selectedId} event={address.event} />
          ) : (
            <EmptyState>Select a worker to view details</EmptyState>
          )}
        </section>
      </main>
      {openDialog === "help" && <HelpDialog onClose={() => setOpenDialog(null)} />}
      {openDialog === "plugins" && (
        <PluginsDialog
          onClose={() => setOpenDialog(null)}
          onRun={(name) => {
            rememberWorker(name);
            setOpenDialog("dispatch");
          }}
        />
      )}
      {openDialog === "dispatch" && (
        <NewRunDialog
          owner={address.owner}
          onClose={() => setOpenDialog(null)}
          onDispatched={(runId) => {
            setOpenDialog(null);
            changeAddress(selectRun(runId));
            enterZone("detail");
          }}
        />
      )}
    </div>
  );
}
