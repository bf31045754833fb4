import { Link } from "@tanstack/react-router";
import { useEffect, useState } from "react";
import { logOut, useConnection } from "@/api";
import { Button } from "@/components/ui/Button";
import { useAddress } from "@/useAddress";
import { ALL_OWNERS } from "@/router";
import { type Theme, setTheme, useTheme } from "@/theme";

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const ICONS: Record<Theme, string> = { system: "◐", light: "○", dark: "●" };

interface TopBarProps {
  onDispatch: () => void;
  onHelp: () => void;
  onPlugins: () => void;
}

export function TopBar({ onDispatch, onHelp, onPlugins }: TopBarProps) {
  const { owner } = useAddress();
  const theme = useTheme();
  return (
    <header className="flex h-11 shrink-0 items-center gap-2 border-b border-line bg-app-side px-3">
      <Link to="/agents/$agentId/workers" params={{ agentId: ALL_OWNERS }} className="font-semibold text-ink">
        Shopfloor
      </Link>
      {owner !== undefined && (
        <span className="flex min-w-0 items-center gap-1 text-ink-dull">
          <span aria-hidden>/</span>
          <span className="truncate">{owner}</span>
          <Link
            to="/agents/$agentId/workers"
            params={{ agentId: ALL_OWNERS }}
            search={(before) => before}
            className="text-xs text-accent underline"
          >
            all owners
          </Link>
        </span>
      )}
      <ConnectionWarning />
      <span className="flex-1" />
      {/* On a narrow screen the form for a new run leads to the plugins. */}
      <Button variant="ghost" onClick={onPlugins} title="List the plugins (p)" className="max-sm:hidden">
        Plugins
      </Button>
      <Button
        variant="ghost"
        onClick={() => setTheme(NEXT[theme])}
        title={`Theme: ${theme}. Switch to ${NEXT[theme]}.`}
        aria-label={`Theme: ${theme}`}
      >
        <span aria-hidden>{ICONS[theme]}</span>
      </Button>
      <Button variant="ghost" onClick={onHelp} title="Keyboard shortcuts (?)" aria-label="Keyboard shortcuts">
        ?
      </Button>
      <Button variant="ghost" onClick={() => void logOut()} title="End the session of this browser">
        Log out
      </Button>
      <Button variant="primary" onClick={onDispatch} title="Run a worker (n)">
        New run
      </Button>
    </header>
  );
}

const WARNING_DELAY_MS = 1_500;

/** Warn about a lost connection once it has lasted long enough to matter. */
function ConnectionWarning() {
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
  if (!isShown) return null;
  return (
    <span role="status" className="rounded bg-running-back px-2 py-0.5 text-xs font-medium text-running">
      Not connected. Reconnecting…
    </span>
  );
}
