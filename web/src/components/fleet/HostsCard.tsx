import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import clsx from "clsx";
import { Fragment, useState } from "react";
import { drainHost, type Host, hostsQuery, type Status, undrainHost } from "@/api";
import { ErrorLine, SkeletonRows } from "@/components/charts/ErrorLine";
import { Meter } from "@/components/charts/Meter";
import { RunLink } from "@/components/charts/RunLink";
import { SlotSquares } from "@/components/charts/SlotSquares";
import { Sparkline } from "@/components/charts/Sparkline";
import { useRoving } from "@/components/charts/useRoving";
import { useCanAct } from "@/useCanAct";
import { StatusIcon } from "@/components/ui/Badge";
import { Button } from "@/components/ui/Button";
import { Icon, type IconName } from "@/components/ui/Icon";
import { useNow } from "@/components/ui/Time";
import {
  HIGH_PERCENT,
  hostFacts,
  hostName,
  hostState,
  isDraining,
  slotsOf,
  slotsText,
  sortedHosts,
} from "@/views/fleet";
import { formatShort } from "@/views/time";
import { toggled } from "@/views/sets";

type Roving = ReturnType<typeof useRoving>;

/** The hosts: one row each, with the runs that they execute unfolded on demand. */
export function HostsCard() {
  const query = useQuery(hostsQuery);
  const hosts = sortedHosts(query.data?.hosts ?? []);
  const canAct = useCanAct();
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const roving = useRoving(
    hosts.flatMap((host) => [
      ...(host.runs.length ? [`runs ${host.id}`] : []),
      ...(open.has(host.id) ? host.runs.map((run) => `run ${run.run_id}`) : []),
      ...(canAct ? [`drain ${host.id}`] : []),
    ]),
  );
  const heartbeat = hosts[0]?.heartbeat_seconds;
  return (
    <section aria-labelledby="hosts" className="card">
      <header>
        <h2 id="hosts">Hosts</h2>
        {heartbeat !== undefined && <span className="m3">heartbeat every {formatShort(heartbeat * 1000)}</span>}
      </header>
      {query.isPending && <SkeletonRows subject="hosts" rows={3} height={48} />}
      {query.isError && !query.data && (
        <ErrorLine what="The hosts cannot be shown" error={query.error} onRetry={() => void query.refetch()} />
      )}
      {query.data && hosts.length === 0 && (
        <p className="empty">
          No hosts. Runs wait until one is there: <code className="mono">shopfloor host</code> starts one.
        </p>
      )}
      {hosts.length > 0 && (
        <table className="hosts" aria-labelledby="hosts" onKeyDown={roving.onKeyDown}>
          <thead>
            <tr>
              <th scope="col">Host</th>
              <th scope="col" className="col-state">
                State
              </th>
              <th scope="col" className="col-runs">
                Runs
              </th>
              <th scope="col" className="col-cpu">
                CPU
              </th>
              <th scope="col" className="col-meter">
                Memory
              </th>
              <th scope="col" className="col-meter">
                Disk
              </th>
              <th scope="col" className="col-age n">
                Heartbeat
              </th>
              <th scope="col" className="col-action">
                <span className="sr-only">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {hosts.map((host) => (
              <Fragment key={host.id}>
                <HostRow
                  host={host}
                  name={hostName(host, hosts)}
                  isOpen={open.has(host.id)}
                  onToggle={() => setOpen((before) => toggled(before, host.id))}
                  canAct={canAct}
                  roving={roving}
                />
                {open.has(host.id) && host.runs.length > 0 && <HostRuns host={host} roving={roving} />}
              </Fragment>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

interface HostRowProps {
  host: Host;
  name: string;
  isOpen: boolean;
  onToggle: () => void;
  canAct: boolean;
  roving: Roving;
}

function HostRow({ host, name, isOpen, onToggle, canAct, roving }: HostRowProps) {
  const now = useNow();
  const state = hostState(host, now);
  const isSilent = state.tone === "failed";
  const isGone = host.status === "offline";
  const metrics = isGone || isSilent ? null : host.metrics;
  const [icon, color]: [IconName, string] = isSilent
    ? ["warn", "text-failed"]
    : isDraining(host)
      ? ["drain", "text-running"]
      : ["host", isGone ? "text-icon" : "text-done"];
  return (
    <tr className={clsx(isGone && "gone")}>
      <th scope="row" className="host-name">
        <Icon name={icon} className={color} />
        <span className="cut">
          <b className="cut" title={`${host.hostname} · ${host.id} · version ${host.version}`}>
            {name}
          </b>
          <small className="cut" title={hostFacts(host)}>
            {hostFacts(host)}
          </small>
        </span>
      </th>
      <td data-label="State">
        <span className={`t-${state.tone}`} title={host.drain_reason ?? undefined}>
          {state.text}
        </span>
      </td>
      <td data-label="Runs" className="host-slots">
        {!isGone && <SlotSquares slots={slotsOf(host)} />}
        <span className="sr-only">
          {host.slots_used} of {host.slots} slots used
        </span>
        {host.runs.length > 0 ? (
          <button
            type="button"
            aria-expanded={isOpen}
            onClick={onToggle}
            className="fold"
            {...roving.item(`runs ${host.id}`)}
          >
            <Icon name={isOpen ? "down" : "right"} className="size-3" />
            {slotsText(host)}
          </button>
        ) : (
          <small className="m3">{isGone ? "–" : slotsText(host)}</small>
        )}
      </td>
      <td data-label="CPU">
        {metrics && metrics.cpu_percent !== null ? (
          <span className="figure">
            <Sparkline
              values={host.cpu_history}
              max={100}
              label={`CPU of ${name}, last ${host.cpu_history.length} heartbeats`}
            />
            <span className="num">{Math.round(metrics.cpu_percent)} %</span>
          </span>
        ) : (
          <span className="m3">–</span>
        )}
      </td>
      <MeterCell label="Memory" host={name} percent={metrics?.memory_percent} />
      <MeterCell label="Disk" host={name} percent={metrics?.disk_percent} />
      <td data-label="Heartbeat" className={clsx("n num", isSilent ? "t-failed" : "m3")}>
        {host.heartbeat_at === null ? "–" : formatShort(Math.max(0, now - Date.parse(host.heartbeat_at)))}
      </td>
      <td className="n">{canAct && !isGone && <DrainButton host={host} name={name} roving={roving} />}</td>
    </tr>
  );
}

function MeterCell({ label, host, percent }: { label: string; host: string; percent: number | undefined }) {
  return (
    <td data-label={label}>
      {percent === undefined ? (
        <span className="m3">–</span>
      ) : (
        <span className="figure">
          <Meter label={`${label} of ${host}`} percent={percent} tone={percent >= HIGH_PERCENT ? "running" : "quiet"} />
          <span className="num">{Math.round(percent)} %</span>
        </span>
      )}
    </td>
  );
}

/** Stop giving runs to a host, or undo that. */
function DrainButton({ host, name, roving }: { host: Host; name: string; roving: Roving }) {
  const queries = useQueryClient();
  const isUndo = isDraining(host);
  const action = useMutation({
    mutationFn: () => (isUndo ? undrainHost(host.id) : drainHost(host.id)),
    onSettled: () => queries.invalidateQueries({ queryKey: hostsQuery.queryKey }),
  });
  return (
    <>
      {action.isError && (
        <span role="alert" className="t-failed" title={action.error.message}>
          <Icon name="warn" label={action.error.message} className="size-3.5" />
        </span>
      )}
      <Button
        disabled={action.isPending}
        onClick={() => action.mutate()}
        aria-label={isUndo ? `Undo the drain of ${name}` : `Drain ${name}`}
        title={isUndo ? "Take runs again" : "Finish its runs and take no more"}
        {...roving.item(`drain ${host.id}`)}
      >
        {!isUndo && <Icon name="drain" className="size-3.5 text-icon" />}
        {isUndo ? "Undo" : "Drain"}
      </Button>
    </>
  );
}

/** The runs of a host, below its row. */
function HostRuns({ host, roving }: { host: Host; roving: Roving }) {
  const now = useNow();
  return (
    <tr className="host-runs">
      <td colSpan={8}>
        <ul aria-label={`Runs on ${host.hostname}`}>
          {host.runs.map((run) => (
            <li key={run.run_id}>
              <RunLink runId={run.run_id} {...roving.item(`run ${run.run_id}`)}>
                <StatusIcon status={run.status as Status} className="size-3.5" />
                <span className="cut grow">
                  {run.task || run.worker} <span className="m3">· {run.worker}</span>
                </span>
                {typeof run.progress === "number" && (
                  <Meter label={`Progress of ${run.task || run.worker}`} percent={run.progress * 100} tone="running" />
                )}
                <span className="num m3">{formatShort(Math.max(0, now - Date.parse(run.started_at)))}</span>
              </RunLink>
            </li>
          ))}
        </ul>
      </td>
    </tr>
  );
}
