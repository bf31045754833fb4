import clsx from "clsx";
import type { ReactNode } from "react";
import type { Status } from "@/api";
import { Icon, type IconName } from "./Icon";

const BADGE_COLORS: Record<Status, string> = {
  running: "bg-running-bg text-running-text",
  done: "bg-done-bg text-done-text",
  failed: "bg-failed-bg text-failed-text",
  waiting: "bg-waiting-bg text-waiting-text",
  cancelled: "bg-queued-bg text-queued-text",
  queued: "bg-queued-bg text-queued-text",
};
/** Shapes differ too: color is never the only sign. */
const ICONS: Record<Status, { icon: IconName; color: string }> = {
  running: { icon: "running", color: "text-running" },
  done: { icon: "done", color: "text-done" },
  failed: { icon: "failed", color: "text-failed" },
  waiting: { icon: "waiting", color: "text-waiting" },
  cancelled: { icon: "cancelled", color: "text-queued" },
  queued: { icon: "queued", color: "text-queued" },
};

/** A run that no process executes does not look as if it ran. */
const lookOf = (status: Status, interrupted: boolean) =>
  interrupted ? { icon: "warn" as const, color: "text-waiting" } : ICONS[status];

interface StatusProps {
  status: Status;
  /** Whether the process that executed the run is gone. */
  interrupted?: boolean;
  /** Kinds of calls that the run waits for, as `waits_for` has them. */
  waitsFor?: readonly string[] | null;
  className?: string | undefined;
}

/** Return the words for a status: `waiting: question`. */
export function statusWords({ status, interrupted = false, waitsFor }: StatusProps): string {
  const kinds = waitsFor?.length ? `: ${[...new Set(waitsFor)].join(", ").replaceAll("_", " ")}` : "";
  return `${interrupted ? "interrupted" : status}${kinds}`;
}

const titleOf = (props: StatusProps) =>
  props.interrupted ? "The process that executed this run is gone" : statusWords(props);

/** The status of a run as an icon in its color; its name is the status. */
export function StatusIcon(props: StatusProps) {
  const { status, interrupted = false, className } = props;
  const { icon, color } = lookOf(status, interrupted);
  return (
    <span data-status={status} title={titleOf(props)} className={clsx("flex shrink-0", color)}>
      <Icon
        name={icon}
        label={statusWords(props)}
        className={clsx(className, status === "running" && !interrupted && "spin")}
      />
    </span>
  );
}

/** The icon of a status as decoration, beside its word. */
export function StatusSign({ status, interrupted = false, className }: StatusProps) {
  const { icon, color } = lookOf(status, interrupted);
  return <Icon name={icon} className={clsx(className, color, status === "running" && !interrupted && "spin")} />;
}

/** The status of a run as a word in its color. */
export function StatusBadge(props: StatusProps) {
  const { status, interrupted = false, className } = props;
  return (
    <span
      data-status={status}
      title={titleOf(props)}
      className={clsx(
        "inline-flex h-5 shrink-0 items-center rounded-1 px-1.5 text-11 font-medium whitespace-nowrap",
        interrupted ? BADGE_COLORS.waiting : BADGE_COLORS[status],
        className,
      )}
    >
      {statusWords(props)}
    </span>
  );
}

/** A short label: a kind, a model. */
export function Tag({ children, title }: { children: ReactNode; title?: string }) {
  return (
    <span
      title={title}
      className="inline-flex h-5 items-center rounded-1 border border-border px-1.5 text-11 whitespace-nowrap text-text-2"
    >
      {children}
    </span>
  );
}
