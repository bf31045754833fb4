import clsx from "clsx";
import { useEffect, useState } from "react";
import { Button } from "@/components/ui/Button";
import { Icon } from "@/components/ui/Icon";

/** How long the button waits for the confirming press. */
const CONFIRM_MS = 5_000;
const LABELS = { idle: "Cancel", confirming: "Really cancel?", cancelling: "Cancelling…" };

/** A button that cancels at the second press: a cancelled run cannot be resumed. */
export function CancelButton({ isCancelling, onCancel }: { isCancelling: boolean; onCancel: () => void }) {
  const [isConfirming, setIsConfirming] = useState(false);
  useEffect(() => {
    if (!isConfirming) return;
    const timer = setTimeout(() => setIsConfirming(false), CONFIRM_MS);
    return () => clearTimeout(timer);
  }, [isConfirming]);
  const state: keyof typeof LABELS = isCancelling ? "cancelling" : isConfirming ? "confirming" : "idle";
  return (
    <>
      <Button
        variant="danger"
        disabled={isCancelling}
        onBlur={() => setIsConfirming(false)}
        onClick={(event) => {
          // The second click of a double click does not confirm.
          if (isConfirming && event.detail > 1) return;
          setIsConfirming(!isConfirming);
          if (isConfirming) onCancel();
        }}
      >
        {/* As wide as the longest label, so that nothing moves under the pointer. A narrow screen shows the icon until
            the button asks: the task needs the room. */}
        <span className="grid justify-items-center">
          {Object.entries(LABELS).map(([name, label]) => (
            <span
              key={name}
              aria-hidden={name !== state}
              className={clsx("flex items-center gap-1.5 [grid-area:1/1]", name !== state && "invisible max-md:hidden")}
            >
              <Icon name="stop" className="size-3.5 text-failed" />
              <span className={clsx(name !== "confirming" && "max-md:sr-only")}>{label}</span>
            </span>
          ))}
        </span>
      </Button>
      <span role="status" className="sr-only">
        {state === "confirming" && "Press again to cancel the run."}
      </span>
    </>
  );
}
