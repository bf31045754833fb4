/** Actions that make a new run from a run, and then show the new run. */
import { useMutation } from "@tanstack/react-query";
import { useCallback, useRef } from "react";
import { forkRun, type RunDetail, replyToRun, rerunRun } from "@/api";
import { enterZone } from "@/shortcuts";
import { useCanAct } from "@/useCanAct";
import { useChangeAddress } from "@/useAddress";
import { selectRun } from "@/views/addressParameters";

/** Return a function that shows a run that was just started. */
export function useShowRun(): (runId: string) => void {
  const changeAddress = useChangeAddress();
  return useCallback(
    (runId) => {
      enterZone("detail");
      changeAddress(selectRun(runId));
    },
    [changeAddress],
  );
}

export interface Again {
  readonly rerun: () => void;
  readonly fork: (seq: number) => void;
  readonly isPending: boolean;
  readonly error: Error | null;
}

/** Return what can be done with a run again; null if the user may not. */
export function useAgain(run: RunDetail): Again | null {
  const canAct = useCanAct();
  const showRun = useShowRun();
  const isStartingRef = useRef(false);
  const { mutate, isPending, error } = useMutation({
    mutationFn: (seq: number | null) => (seq === null ? rerunRun(run.id, null) : forkRun(run.id, seq)),
    onSuccess: ({ run_id }) => showRun(run_id),
    onSettled: () => void (isStartingRef.current = false),
  });
  // A key that is pressed twice starts one run.
  const start = useCallback(
    (seq: number | null) => {
      if (isStartingRef.current) return;
      isStartingRef.current = true;
      mutate(seq);
    },
    [mutate],
  );
  return canAct ? { rerun: () => start(null), fork: start, isPending, error } : null;
}

/** Continue the session of the run's agent with a new prompt. */
export function useReply(run: RunDetail) {
  const showRun = useShowRun();
  return useMutation({
    mutationFn: (text: string) => replyToRun(run.id, text),
    onSuccess: ({ run_id }) => showRun(run_id),
  });
}

/** Whether the run is a session of an agent, which can be continued when it has ended. */
export const isAgentRun = (run: RunDetail) => run.kind === "agent" && run.provider === run.worker_type;
