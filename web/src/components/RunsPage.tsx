import clsx from "clsx";
import { lazy, Suspense, useEffect, useRef } from "react";
import { Detail } from "@/components/detail/Detail";
import { RunList } from "@/components/list/RunList";
import { EmptyState } from "@/components/ui/EmptyState";
import { isNarrowScreen } from "@/screen";
import { enterZone, useShortcuts, watchZone } from "@/shortcuts";
import { useChangeAddress, useAddress, useIsOverview } from "@/useAddress";
import { selectRun } from "@/views/addressParameters";

const Overview = lazy(() => import("@/components/overview/Overview").then((module) => ({ default: module.Overview })));

/** The list of runs on the left; the selected run or the overview on the right. A narrow screen shows one of them. */
export function RunsPage() {
  const address = useAddress();
  const changeAddress = useChangeAddress();
  const isOverview = useIsOverview();
  const mainRef = useRef<HTMLElement>(null);
  // Not as state: the page would be rendered between a press and its release, and a press that scrolls would be lost.
  useEffect(() => watchZone((zone) => mainRef.current?.setAttribute("data-zone", zone)), []);
  useShortcuts("page", {
    Escape: () => {
      enterZone("list");
      if (isNarrowScreen() && !isOverview) changeAddress(selectRun());
    },
  });
  const selectedId = isOverview ? undefined : address.worker;
  const isListHidden = selectedId !== undefined || isOverview;
  return (
    <main ref={mainRef} id="main" tabIndex={-1} className="group/zone flex min-h-0 flex-1 outline-none">
      {!selectedId && !isOverview && <h1 className="sr-only">Runs</h1>}
      <section
        aria-label="Runs"
        onPointerDownCapture={() => enterZone("list")}
        onFocusCapture={() => enterZone("list")}
        className={clsx(
          "min-h-0 w-full shrink-0 flex-col border-border bg-bg-side md:flex md:w-(--list-w) md:border-r",
          isListHidden ? "hidden" : "flex",
        )}
      >
        <RunList />
      </section>
      <section
        aria-label={isOverview ? "Overview" : "Selected run"}
        onPointerDownCapture={() => enterZone("detail")}
        onFocusCapture={() => enterZone("detail")}
        className={clsx("min-h-0 min-w-0 flex-1 flex-col md:flex", isListHidden ? "flex" : "hidden")}
      >
        {isOverview ? (
          <Suspense>
            <Overview />
          </Suspense>
        ) : selectedId ? (
          <Detail key={selectedId} runId={selectedId} event={address.event} />
        ) : (
          <EmptyState>Select a worker to view details</EmptyState>
        )}
      </section>
    </main>
  );
}
