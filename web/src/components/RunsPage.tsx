import clsx from "clsx";
import { useState } from "react";
import { Detail } from "@/components/detail/Detail";
import { Dispatch } from "@/components/dispatch/NewRunDialog";
import { Help } from "@/components/HelpDialog";
import { RunList } from "@/components/list/RunList";
import { TopBar } from "@/components/TopBar";
import { Quiet } from "@/components/ui/EmptyState";
import { enterZone, useKeys } from "@/shortcuts";
import { useGo, usePlace } from "@/address";
import { toRun } from "@/views/address";

/** Screens with room for one column only. */
const NARROW = "(width < 48rem)";

/** The page: the list of runs on the left, the selected run on the right. A narrow screen shows one of them. */
export function Workers() {
  const place = usePlace();
  const go = useGo();
  const [over, setOver] = useState<"help" | "dispatch" | null>(null);
  useKeys("page", {
    "?": () => setOver("help"),
    n: () => setOver("dispatch"),
    Escape: () => {
      enterZone("list");
      if (matchMedia(NARROW).matches) go(toRun());
    },
  });
  const chosen = place.worker;
  return (
    <div className="flex h-dvh flex-col">
      <TopBar onDispatch={() => setOver("dispatch")} onHelp={() => setOver("help")} />
      <main className="flex min-h-0 flex-1">
        {!chosen && <h1 className="sr-only">Runs</h1>}
        <section
          aria-label="Runs"
          onPointerDownCapture={() => enterZone("list")}
          onFocusCapture={() => enterZone("list")}
          className={clsx(
            "min-h-0 w-full shrink-0 flex-col border-r border-line bg-app-side @container md:flex md:w-80 lg:w-88 xl:w-96",
            chosen ? "hidden" : "flex",
          )}
        >
          <RunList />
        </section>
        <section
          aria-label="The chosen run"
          onPointerDownCapture={() => enterZone("detail")}
          onFocusCapture={() => enterZone("detail")}
          className={clsx("min-h-0 min-w-0 flex-1 flex-col md:flex", chosen ? "flex" : "hidden")}
        >
          {chosen ? (
            <Detail key={chosen} runId={chosen} event={place.event} />
          ) : (
            <Quiet>Select a worker to view details</Quiet>
          )}
        </section>
      </main>
      {over === "help" && <Help onClose={() => setOver(null)} />}
      {over === "dispatch" && (
        <Dispatch
          owner={place.owner}
          onClose={() => setOver(null)}
          onDispatched={(runId) => {
            setOver(null);
            go(toRun(runId));
            enterZone("detail");
          }}
        />
      )}
    </div>
  );
}
