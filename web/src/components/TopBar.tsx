import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { logOut, useConnection } from "@/api";
import { Button } from "@/components/ui/Button";
import { usePlace } from "@/address";
import { EVERYBODY } from "@/router";
import { type Theme, chooseTheme, useTheme } from "@/theme";

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const SHAPES: Record<Theme, string> = { system: "◐", light: "○", dark: "●" };

export function TopBar({ onDispatch, onHelp }: { onDispatch: () => void; onHelp: () => void }) {
  const { owner } = usePlace();
  const theme = useTheme();
  return (
    <header className="flex h-11 shrink-0 items-center gap-2 border-b border-line bg-app-side px-3">
      <Link to="/agents/$agentId/workers" params={{ agentId: EVERYBODY }} className="font-semibold text-ink">
        Shopfloor
      </Link>
      {owner !== undefined && (
        <span className="flex min-w-0 items-center gap-1 text-ink-dull">
          <span aria-hidden>/</span>
          <span className="truncate">{owner}</span>
          <Link
            to="/agents/$agentId/workers"
            params={{ agentId: EVERYBODY }}
            search={(before) => before}
            className="text-xs text-accent underline"
          >
            all owners
          </Link>
        </span>
      )}
      <Disconnected />
      <span className="flex-1" />
      <Button
        look="bare"
        onClick={() => chooseTheme(NEXT[theme])}
        title={`Colours: ${theme}. Change to ${NEXT[theme]}.`}
        aria-label={`Colours: ${theme}`}
      >
        <span aria-hidden>{SHAPES[theme]}</span>
      </Button>
      <Button look="bare" onClick={onHelp} title="Keys (?)" aria-label="Help: keys">
        ?
      </Button>
      <Button look="bare" onClick={() => void logOut()} title="End the session of this browser">
        Log out
      </Button>
      <Button look="primary" onClick={onDispatch} title="Run a worker (n)">
        New run
      </Button>
    </header>
  );
}

const PATIENCE_MS = 1_500;

/** Warn about a lost connection once it has lasted long enough to matter. */
function Disconnected() {
  const lost = useConnection() !== "live";
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (!lost) return;
    const timer = setTimeout(() => setShown(true), PATIENCE_MS);
    return () => {
      clearTimeout(timer);
      setShown(false);
    };
  }, [lost]);
  if (!shown) return null;
  return (
    <span role="status" className="rounded bg-running-back px-2 py-0.5 text-xs font-medium text-running">
      Not connected. Trying again…
    </span>
  );
}
