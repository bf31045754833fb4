import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { pollMs, Problem, type RunDetail, runQuery, TIMELINE_POLL_MS, useConnection } from "@/api";
import { Loading, Quiet } from "@/parts/ui/Quiet";
import { Trouble } from "@/parts/ui/Trouble";
import { goesOn, titleOf } from "@/views/detail";
import { Header } from "./Header";
import { BackToRuns } from "./links";
import { Panes } from "./Panes";

const NOT_FOUND = 404;

/** The chosen run: what it is, what was done in it, what it gave. */
export function Detail({ runId, event }: { runId: string; event: number | undefined }) {
  const poll = pollMs(useConnection(), TIMELINE_POLL_MS);
  const asked = useQuery({
    ...runQuery(runId),
    refetchInterval: ({ state }) => state.data !== undefined && goesOn(state.data.status) && poll,
  });
  useTitle(asked.data);
  if (asked.isPending) return <Loading what="the run" />;
  if (asked.error instanceof Problem && asked.error.status === NOT_FOUND) return <Gone />;
  if (!asked.data) {
    return (
      <div>
        <div className="px-3 pt-2 md:hidden">
          <BackToRuns />
        </div>
        <Trouble error={asked.error} onRetry={() => void asked.refetch()} />
      </div>
    );
  }
  return (
    <div className="@container flex min-h-0 flex-1 flex-col divide-y divide-line overflow-y-auto">
      <Header run={asked.data} />
      {/* What is shown may be old. */}
      {asked.isError && <Trouble error={asked.error} onRetry={() => void asked.refetch()} />}
      <Panes run={asked.data} event={event} />
    </div>
  );
}

function Gone() {
  return (
    <Quiet>
      <p>This run is not here (any more).</p>
      <BackToRuns />
    </Quiet>
  );
}

function useTitle(run: RunDetail | undefined): void {
  const title = run ? titleOf(run) : "Shopfloor";
  useEffect(() => {
    document.title = title;
    return () => {
      document.title = "Shopfloor";
    };
  }, [title]);
}
