import { useQuery } from "@tanstack/react-query";
import { LIST_POLL_MS, pollMs, useConnection, waitingQuery, type WaitingItem } from "@/api";

const NONE: readonly WaitingItem[] = [];

/** What waits for a person, live. The longest wait is first. */
export const useWaiting = (): readonly WaitingItem[] => useKnownWaiting() ?? NONE;

/** The same; undefined while it is not known. */
export function useKnownWaiting(): readonly WaitingItem[] | undefined {
  const poll = pollMs(useConnection(), LIST_POLL_MS);
  return useQuery({ ...waitingQuery, refetchInterval: poll }).data?.items;
}
