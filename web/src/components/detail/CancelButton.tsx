import clsx from "clsx";
import { useEffect, useState } from "react";
import { Button } from "@/components/ui/Button";

/** How long the button waits for the confirming press. */
const ASKS_MS = 5_000;
const WORDS = { idle: "Cancel", asks: "Really cancel?", asked: "Cancelling…" };

/** A button that cancels at the second press: a cancelled run cannot be resumed. */
export function Cancel({ isAsked, onCancel }: { isAsked: boolean; onCancel: () => void }) {
  const [asks, setAsks] = useState(false);
  useEffect(() => {
    if (!asks) return;
    const timer = setTimeout(() => setAsks(false), ASKS_MS);
    return () => clearTimeout(timer);
  }, [asks]);
  const state = isAsked ? "asked" : asks ? "asks" : "idle";
  return (
    <>
      <Button
        look="danger"
        className="mr-1 ml-2 @3xl:ml-0"
        disabled={isAsked}
        onBlur={() => setAsks(false)}
        onClick={(event) => {
          // The second click of a double click does not confirm.
          if (asks && event.detail > 1) return;
          setAsks(!asks);
          if (asks) onCancel();
        }}
      >
        {/* As wide as the longest label, so that nothing moves under the pointer. */}
        <span className="grid text-center">
          {Object.entries(WORDS).map(([one, words]) => (
            <span
              key={one}
              aria-hidden={one !== state}
              className={clsx("[grid-area:1/1]", one !== state && "invisible")}
            >
              {words}
            </span>
          ))}
        </span>
      </Button>
      <span role="status" className="sr-only">
        {state === "asks" && "Press again to cancel the run."}
      </span>
    </>
  );
}
