import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { type WaitingItem, waitingQuery } from "@/api";
import { useQuery } from "@tanstack/react-query";
import { useTabCount } from "@/documentTitle";
import { notify } from "@/notifications";
import { ALL_OWNERS } from "@/views/addressParameters";
import { keyOf, kindText } from "@/views/waiting";
import { useWaiting } from "./useWaiting";

/** Show in the browser tab how much waits for the user, and notify the user of what is new. */
export function useAttention(): void {
  const items = useWaiting();
  const isLoaded = useQuery(waitingQuery).isSuccess;
  const navigate = useNavigate();
  useTabCount(items.length);
  // What waited before the page was opened is no news.
  const seenRef = useRef<Set<string> | null>(null);
  useEffect(() => {
    if (!isLoaded) return;
    const seen = seenRef.current;
    seenRef.current = new Set([...(seen ?? []), ...items.map(keyOf)]);
    const show = ({ run_id }: WaitingItem) =>
      void navigate({
        to: "/agents/$agentId/workers",
        params: { agentId: ALL_OWNERS },
        search: { worker: run_id },
      });
    for (const item of seen ? items.filter((candidate) => !seen.has(keyOf(candidate))) : [])
      notify(`${kindText(item.kind)}: ${item.title || item.worker}`, item.text, keyOf(item), () => show(item));
  }, [items, isLoaded, navigate]);
}
