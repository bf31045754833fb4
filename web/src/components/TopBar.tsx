import { Link, useParams } from "@tanstack/react-router";
import clsx from "clsx";
import { logOut, useConnection } from "@/api";
import { NotificationButton } from "@/components/needsyou/NotificationButton";
import { useWaiting } from "@/components/needsyou/useWaiting";
import { Button } from "@/components/ui/Button";
import { Count } from "@/components/ui/Count";
import { Icon, type IconName } from "@/components/ui/Icon";
import { type Theme, setTheme, useTheme } from "@/theme";
import { useCanAct } from "@/useCanAct";
import { ALL_OWNERS } from "@/views/addressParameters";

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const THEME_ICONS: Record<Theme, IconName> = { system: "system", light: "sun", dark: "moon" };

interface TopBarProps {
  onDispatch: () => void;
  onHelp: () => void;
  onPlugins: () => void;
}

export function TopBar({ onDispatch, onHelp, onPlugins }: TopBarProps) {
  const { agentId } = useParams({ strict: false });
  const owner = agentId === ALL_OWNERS ? undefined : agentId;
  const theme = useTheme();
  const canAct = useCanAct();
  return (
    <header className="flex h-(--topbar-h) shrink-0 items-center gap-1 border-b border-border bg-bg-side pr-3 pl-3.5 max-md:pr-2">
      <Link to="/" className="flex items-center gap-2 text-14 font-semibold tracking-[-.01em]">
        <Logo />
        Shopfloor
      </Link>
      <nav aria-label="Pages" className="ml-2 flex gap-0.5 max-md:hidden">
        <PageLinks className="flex h-7 items-center rounded-2 px-2.5 font-medium text-text-2 hover:bg-bg-hover aria-[current=page]:bg-bg-press aria-[current=page]:text-text" />
      </nav>
      {owner !== undefined && (
        <span className="ml-2 flex min-w-0 items-center gap-1.5 text-12 text-text-2">
          <span className="truncate" title={`Owner: ${owner}`}>
            {owner}
          </span>
          <Link
            to="/agents/$agentId/workers"
            params={{ agentId: ALL_OWNERS }}
            search={(before) => before}
            className="shrink-0 text-accent-text hover:underline"
          >
            all owners
          </Link>
        </span>
      )}
      <span className="flex-1" />
      <ConnectionState />
      {/* On a narrow screen the form for a new run leads to the plugins. */}
      <Button variant="ghost" onClick={onPlugins} title="List the plugins (p)" className="max-lg:hidden">
        Plugins
      </Button>
      <NotificationButton />
      <Button
        variant="ghost"
        onClick={() => setTheme(NEXT[theme])}
        title={`Theme: ${theme}. Switch to ${NEXT[theme]}.`}
        aria-label={`Theme: ${theme}`}
      >
        <Icon name={THEME_ICONS[theme]} className="text-icon" />
      </Button>
      <Button
        variant="ghost"
        onClick={onHelp}
        title="Keyboard shortcuts (?)"
        aria-label="Keyboard shortcuts"
        className="max-md:hidden"
      >
        <Icon name="help" className="text-icon" />
      </Button>
      <Button
        variant="ghost"
        onClick={() => void logOut()}
        title="End the session of this browser"
        aria-label="Log out"
      >
        <Icon name="signOut" className="text-icon" />
      </Button>
      {canAct && (
        <Button variant="primary" onClick={onDispatch} title="Run a worker (n)" className="ml-1">
          <Icon name="plus" className="size-3.5" />
          <span className="max-md:sr-only">New run</span>
          <kbd aria-hidden className="bg-n-11! text-n-1! shadow-none! max-lg:hidden">
            n
          </kbd>
        </Button>
      )}
    </header>
  );
}

/** The links to the pages at the end of a narrow screen. */
export function TabBar() {
  return (
    <nav aria-label="Pages" className="flex h-14 shrink-0 border-t border-border bg-bg-side md:hidden">
      <PageLinks
        hasIcons
        className="flex flex-1 flex-col items-center justify-center gap-0.5 text-11 text-text-3 aria-[current=page]:font-medium aria-[current=page]:text-accent-text"
      />
    </nav>
  );
}

function PageLinks({ className, hasIcons = false }: { className: string; hasIcons?: boolean }) {
  const icon = (name: IconName) => hasIcons && <Icon name={name} className="size-5" />;
  const waiting = useWaiting().length;
  const props = { activeOptions: { exact: true, includeSearch: false }, className };
  return (
    <>
      <Link to="/" {...props}>
        {icon("home")}Overview
      </Link>
      <Link
        to="/agents/$agentId/workers"
        params={{ agentId: ALL_OWNERS }}
        className={className}
        {...(isRunsPage() && { "aria-current": "page" as const })}
      >
        {hasIcons ? (
          <span className="relative">
            <Icon name="runs" className="size-5" />
            {waiting > 0 && (
              <span className="absolute -top-1 left-3 rounded-full bg-waiting px-1 text-11 leading-4 font-semibold text-bg tabular-nums">
                <Count text={String(waiting)} />
              </span>
            )}
          </span>
        ) : null}
        Runs
      </Link>
      <Link to="/fleet" {...props}>
        {icon("fleet")}Fleet
      </Link>
    </>
  );
}

/** Whether the page lists runs, of all owners or of one. */
const isRunsPage = () => location.pathname.startsWith("/agents/");

const Logo = () => (
  <svg aria-hidden viewBox="0 0 18 18" className="size-[18px]">
    <rect x="1" y="1" width="16" height="16" rx="4.5" className="fill-n-12" />
    <path d="M4.5 6h9M4.5 9h5.5M4.5 12h7.5" className="stroke-n-1" strokeWidth="1.7" strokeLinecap="round" />
  </svg>
);

/** Whether events arrive live. */
function ConnectionState() {
  const isLost = useConnection() !== "live";
  return (
    <span
      title="Events arrive live"
      className={clsx("flex items-center gap-1.5 px-1 text-12 text-text-3 max-md:sr-only", isLost && "invisible")}
    >
      <i aria-hidden className="size-[7px] rounded-full bg-done" />
      Live
    </span>
  );
}
