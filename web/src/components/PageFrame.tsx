import { Outlet, useLocation, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useCallback, useState } from "react";
import { ConnectionBanner, useIsDisconnected } from "@/components/ConnectionBanner";
import { NewRunDialog } from "@/components/dispatch/NewRunDialog";
import { OpenNewRun } from "@/components/dispatch/newRun";
import { rememberWorker } from "@/components/dispatch/WorkerSelect";
import { useAttention } from "@/components/needsyou/useAttention";
import { HelpDialog } from "@/components/HelpDialog";
import { PluginsDialog } from "@/components/plugins/PluginsDialog";
import { TabBar, TopBar } from "@/components/TopBar";
import { buttonClass } from "@/components/ui/Button";
import { enterZone, useShortcuts } from "@/shortcuts";
import { useCanAct } from "@/useCanAct";
import { ALL_OWNERS, paramsOf, selectRun, withChange } from "@/views/addressParameters";

/** What all pages share: the top bar, the dialogs, and the keys that work everywhere. */
export function PageFrame() {
  const navigate = useNavigate();
  const { agentId = ALL_OWNERS } = useParams({ strict: false });
  const { worker: selectedId } = useSearch({ strict: false });
  const [openDialog, setOpenDialog] = useState<"help" | "dispatch" | "plugins" | null>(null);
  const close = () => setOpenDialog(null);
  const openNewRun = useCallback(() => setOpenDialog("dispatch"), []);
  const isFleet = useLocation({ select: ({ pathname }) => pathname === "/fleet" });
  const canAct = useCanAct();
  const isDisconnected = useIsDisconnected();
  useAttention();
  useShortcuts("page", {
    "?": () => setOpenDialog("help"),
    ...(canAct && { n: openNewRun }),
    p: () => setOpenDialog("plugins"),
    go: () => void navigate({ to: "/" }),
    gr: () => void navigate({ to: "/agents/$agentId/workers", params: { agentId: ALL_OWNERS } }),
    gf: () => void navigate({ to: "/fleet" }),
    // The other pages have a list of what waits, and go there themselves.
    ...(isFleet && { w: () => void navigate({ to: "/" }) }),
  });
  const showRun = (runId: string) => {
    close();
    enterZone("detail");
    void navigate({
      to: "/agents/$agentId/workers",
      params: { agentId },
      search: (before) => withChange(paramsOf({ ...before }), selectRun(runId)),
    });
  };
  return (
    <div data-disconnected={isDisconnected || undefined} className="flex h-dvh flex-col">
      <a href="#main" className={buttonClass("plain", "absolute top-2 left-2 z-50 not-focus:sr-only")}>
        Skip to content
      </a>
      <TopBar onDispatch={openNewRun} onHelp={() => setOpenDialog("help")} onPlugins={() => setOpenDialog("plugins")} />
      <ConnectionBanner isDisconnected={isDisconnected} />
      <OpenNewRun value={openNewRun}>
        <Outlet />
      </OpenNewRun>
      {selectedId === undefined && <TabBar />}
      {openDialog === "help" && <HelpDialog onClose={close} />}
      {openDialog === "plugins" && (
        <PluginsDialog
          onClose={close}
          onRun={(name) => {
            rememberWorker(name);
            setOpenDialog("dispatch");
          }}
        />
      )}
      {openDialog === "dispatch" && (
        <NewRunDialog owner={agentId === ALL_OWNERS ? undefined : agentId} onClose={close} onDispatched={showRun} />
      )}
    </div>
  );
}
