/**
 * The selected run. Keys move the selection at once; the address, and with it the rest of the page, follows throttled.
 */
import { useCallback, useEffect, useRef, useState } from "react";
import { useChangeAddress, useAddress } from "@/useAddress";
import { selectRun } from "@/views/addressParameters";

/** How often the address follows while a key is held. */
const THROTTLE_MS = 120;

export interface RunSelection {
  readonly selectedId: string | undefined;
  /** Select a run, with a history entry. */
  readonly select: (runId: string) => void;
  /** Move the selection, without a history entry. */
  readonly move: (runId: string) => void;
}

export function useSelectedRun(): RunSelection {
  const { worker, q } = useAddress();
  const changeAddress = useChangeAddress();
  const [pendingId, setPendingId] = useState<string>();
  const timerRef = useRef<ReturnType<typeof setTimeout>>(undefined);
  const wantedRef = useRef<string>(undefined);
  const reset = useCallback(() => {
    clearTimeout(timerRef.current);
    timerRef.current = undefined;
    wantedRef.current = undefined;
    setPendingId(undefined);
  }, []);
  const select = useCallback(
    (runId: string) => {
      reset();
      changeAddress(selectRun(runId, q));
    },
    [changeAddress, reset, q],
  );
  const follow = useCallback(
    function followLatest() {
      if (wantedRef.current === undefined) {
        reset();
        return;
      }
      changeAddress(selectRun(wantedRef.current, q), true);
      wantedRef.current = undefined;
      timerRef.current = setTimeout(followLatest, THROTTLE_MS);
    },
    [changeAddress, reset, q],
  );
  const move = useCallback(
    (runId: string) => {
      wantedRef.current = runId;
      setPendingId(runId);
      if (timerRef.current === undefined) follow();
    },
    [follow],
  );
  useEffect(() => reset, [reset]);
  return { selectedId: pendingId ?? worker, select, move };
}
