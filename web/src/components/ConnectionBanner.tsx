import { useEffect, useState } from "react";
import { getLiveStream, useConnection, useKnownAt, useMissedEvents } from "@/api";
import { Button } from "@/components/ui/Button";
import { Icon } from "@/components/ui/Icon";
import { useNow } from "@/components/ui/Time";
import { formatClock, formatShort } from "@/views/time";

const WARNING_DELAY_MS = 1_500;

/** Whether the connection has been lost for so long that it matters. */
export function useIsDisconnected(): boolean {
  const isLost = useConnection() !== "live";
  const [isShown, setIsShown] = useState(false);
  useEffect(() => {
    if (!isLost) return;
    const timer = setTimeout(() => setIsShown(true), WARNING_DELAY_MS);
    return () => {
      clearTimeout(timer);
      setIsShown(false);
    };
  }, [isLost]);
  return isShown;
}

/** Above the content while the connection is lost: how old the page is. After it, how many events were missed. */
export function ConnectionBanner({ isDisconnected }: { isDisconnected: boolean }) {
  const missed = useMissedEvents();
  if (isDisconnected) return <LostBanner />;
  if (missed === 0) return null;
  return (
    <p role="status" className="flex h-9 shrink-0 items-center border-b border-border px-3.5 text-12 text-text-2">
      Reconnected. {missed.toLocaleString("en")}{" "}
      {missed === 1 ? "event was missed and has" : "events were missed and have"} been loaded.
    </p>
  );
}

function LostBanner() {
  const now = useNow();
  const knownAt = useKnownAt(now);
  return (
    <div className="flex min-h-9 shrink-0 items-center gap-2 bg-running-bg pr-2 pl-3.5 text-12 text-running-text">
      <Icon name="warn" className="size-3.5" />
      <p role="status" className="min-w-0 flex-1 truncate">
        <b className="font-medium">Not connected.</b> State of {formatClock(new Date(knownAt).toISOString())},{" "}
        {formatShort(now - knownAt)} ago. Reconnecting…
      </p>
      <Button onClick={getLiveStream().retryNow}>Try now</Button>
    </div>
  );
}
