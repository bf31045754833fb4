import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useCallback, useState } from "react";
import { fleetProvidersQuery, hostsQuery, queueQuery } from "@/api";
import { PartsBar } from "@/components/charts/Meter";
import { TileBody } from "@/components/charts/Tile";
import { AddHostDialog } from "@/components/fleet/AddHostDialog";
import { EventsCard } from "@/components/fleet/EventsCard";
import { HostsCard } from "@/components/fleet/HostsCard";
import { ProvidersCard } from "@/components/fleet/ProvidersCard";
import { QueueCard } from "@/components/fleet/QueueCard";
import { Button } from "@/components/ui/Button";
import { Icon } from "@/components/ui/Icon";
import { useNow } from "@/components/ui/Time";
import { countText, fleetTiles, isSetUp } from "@/views/fleet";
import { formatShort } from "@/views/time";
import "@/components/charts/board.css";
import "@/components/fleet/fleet.css";

/** The fleet: hosts, providers, what waits for them, and what they report. */
export function FleetPage() {
  const [dialog, setDialog] = useState<{ label: string | null } | null>(null);
  const refresh = useRefresh();
  return (
    <main id="main" tabIndex={-1} className="board outline-none">
      <div className="board-head">
        <h1>Fleet</h1>
        <Summary />
        <span className="grow" />
        <Button onClick={() => setDialog({ label: null })} title="Show the command that starts a host">
          <Icon name="plus" className="size-3.5 text-icon" />
          Add a host
        </Button>
      </div>
      <Tiles />
      <div className="fleet-grid">
        <div className="fleet-column">
          <HostsCard />
          <QueueCard onAddHost={(label) => setDialog({ label })} />
        </div>
        <div className="fleet-column">
          <ProvidersCard />
          <EventsCard onReceived={refresh} />
        </div>
      </div>
      {dialog && <AddHostDialog label={dialog.label} onClose={() => setDialog(null)} />}
    </main>
  );
}

/** Return a function that requests the parts of the fleet that events of these types change. */
function useRefresh(): (types: readonly string[]) => void {
  const queries = useQueryClient();
  return useCallback(
    (types) => {
      const has = (prefix: string) => types.some((type) => type.startsWith(prefix));
      if (has("worker."))
        for (const key of ["hosts", "queue"])
          void queries.invalidateQueries({ queryKey: [key] }, { cancelRefetch: false });
      if (has("provider.") || types.includes("agent.rate_limited"))
        void queries.invalidateQueries({ queryKey: fleetProvidersQuery.queryKey }, { cancelRefetch: false });
    },
    [queries],
  );
}

/** How many hosts and providers there are. */
function Summary() {
  const { data } = useQuery(hostsQuery);
  const providers = useQuery(fleetProvidersQuery).data?.providers;
  const parts = [
    data && countText(fleetTiles(data.hosts).hosts, "host"),
    providers && countText(providers.filter(isSetUp).length, "provider"),
  ];
  return <span className="m3 cut">{parts.filter(Boolean).join(" · ")}</span>;
}

function Tiles() {
  const now = useNow();
  const hosts = useQuery(hostsQuery);
  const queue = useQuery(queueQuery);
  const tiles = hosts.data && fleetTiles(hosts.data.hosts);
  const waits = queue.data;
  const unknown = (isError: boolean) => (isError ? null : undefined);
  const seconds = (value: number | null | undefined) =>
    value == null ? null : value < 10 ? `${value.toFixed(1)} s` : formatShort(value * 1000);
  return (
    <div className="tiles compact">
      <Tile label="Hosts" value={tiles ? String(tiles.hosts) : unknown(hosts.isError)} note={tiles?.hostsText} />
      <Tile
        label="Slots in use"
        value={tiles ? String(tiles.used) : unknown(hosts.isError)}
        note={tiles && `of ${tiles.slots}`}
      >
        {tiles && (
          <PartsBar
            total={tiles.slots}
            parts={[
              { value: tiles.used - tiles.waiting, color: "var(--running)" },
              { value: tiles.waiting, color: "var(--waiting)" },
            ]}
          />
        )}
      </Tile>
      <Tile
        label="Queue"
        value={waits ? waits.total.toLocaleString("en") : unknown(queue.isError)}
        note={waits?.oldest_queued_at && `oldest ${formatShort(now - Date.parse(waits.oldest_queued_at))}`}
      />
      <Tile
        label="Wait to start, median"
        value={waits ? seconds(waits.wait_p50_seconds) : unknown(queue.isError)}
        note={waits?.wait_p95_seconds == null ? undefined : `95 % within ${seconds(waits.wait_p95_seconds) ?? ""}`}
      />
      <Tile
        label="Started in the last hour"
        value={waits ? waits.started_last_hour.toLocaleString("en") : unknown(queue.isError)}
      />
    </div>
  );
}

function Tile(props: { label: string; value: string | null | undefined; note?: ReactNode; children?: ReactNode }) {
  return (
    <div>
      <TileBody {...props} />
    </div>
  );
}
