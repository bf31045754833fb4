/**
 * The selected run. Keys move the selection at once; the address, and with it the rest of the page, follows throttled.
 */
import { useCallback, useEffect, useRef, useState } from "react";
import { useGo, usePlace } from "@/address";
import { toRun } from "@/views/address";

/** How often the address follows while a key is held. */
const FOLLOWS_MS = 120;

export interface Choice {
  readonly chosen: string | undefined;
  /** Select a run, with a history entry. */
  readonly choose: (runId: string) => void;
  /** Move the selection, without a history entry. */
  readonly move: (runId: string) => void;
}

export function useChoice(): Choice {
  const { worker, q } = usePlace();
  const go = useGo();
  const [ahead, setAhead] = useState<string>();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const wanted = useRef<string>(undefined);
  const rest = useCallback(() => {
    clearTimeout(timer.current);
    timer.current = undefined;
    wanted.current = undefined;
    setAhead(undefined);
  }, []);
  const choose = useCallback(
    (runId: string) => {
      rest();
      go(toRun(runId, q));
    },
    [go, rest, q],
  );
  const follow = useCallback(
    function followLatest() {
      if (wanted.current === undefined) {
        rest();
        return;
      }
      go(toRun(wanted.current, q), true);
      wanted.current = undefined;
      timer.current = setTimeout(followLatest, FOLLOWS_MS);
    },
    [go, rest, q],
  );
  const move = useCallback(
    (runId: string) => {
      wanted.current = runId;
      setAhead(runId);
      if (timer.current === undefined) follow();
    },
    [follow],
  );
  useEffect(() => rest, [rest]);
  return { chosen: ahead ?? worker, choose, move };
}
