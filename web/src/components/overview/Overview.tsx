import { useQuery } from "@tanstack/react-query";
import { type Stats, statsQuery } from "@/api";
import { ErrorLine, SkeletonRows } from "@/components/charts/ErrorLine";
import { Segmented } from "@/components/charts/Segmented";
import { Sparkline } from "@/components/charts/Sparkline";
import { TileBody } from "@/components/charts/Tile";
import { useKnownWaiting } from "@/components/needsyou/useWaiting";
import { FailuresCard } from "@/components/overview/FailuresCard";
import { ListLink } from "@/components/overview/ListLink";
import { NEEDS_YOU_ID, NeedsYou } from "@/components/overview/NeedsYou";
import { RunsCard } from "@/components/overview/RunsCard";
import { SpendCard } from "@/components/overview/SpendCard";
import { ToolsCard } from "@/components/overview/ToolsCard";
import { StatusSign } from "@/components/ui/Badge";
import { Button } from "@/components/ui/Button";
import { Icon } from "@/components/ui/Icon";
import { useNow } from "@/components/ui/Time";
import { filterOf, useAddress, useChangeAddress, useOverviewAddress } from "@/useAddress";
import { isFiltered, NO_FILTER } from "@/views/addressParameters";
import {
  filterText,
  formatCents,
  formatRange,
  type OverviewLinks,
  overviewLinks,
  rangeStart,
  tileTexts,
} from "@/views/overview";
import { RANGES } from "@/views/overviewParameters";
import { formatShort } from "@/views/time";
import { waitingText } from "@/views/waiting";
import "@/components/charts/board.css";
import "@/components/overview/overview.css";

const RANGE_OPTIONS = RANGES.map((value) => ({ value, label: value.replace(/(\d+)/, "$1 ") }));

/** The overview: what needs you, whether something is wrong, and what it costs. */
export function Overview() {
  const address = useAddress();
  const [{ range, by }, change] = useOverviewAddress();
  const changeAddress = useChangeAddress();
  const now = useNow();
  const query = useQuery(statsQuery(filterOf(address), range));
  const stats = query.data;
  const links = overviewLinks(address, stats?.range.since ?? rangeStart(range, now), now);
  return (
    <div className="board overview">
      <div className="board-head">
        <h1>Overview</h1>
        <span className="m3 cut">
          {[filterText(address), stats && formatRange(stats.days)].filter(Boolean).join(" · ")}
        </span>
        <span className="grow" />
        {isFiltered(address) && (
          <Button variant="ghost" onClick={() => changeAddress(NO_FILTER)}>
            Clear filters
          </Button>
        )}
        <Segmented label="Range" options={RANGE_OPTIONS} value={range} onSelect={(value) => change({ range: value })} />
      </div>
      {query.isError && (
        <div className="card mb-3">
          <ErrorLine
            what={
              stats
                ? `The numbers are from ${formatShort(now - query.dataUpdatedAt)} ago and cannot be updated`
                : "The overview cannot be shown"
            }
            error={query.error}
            onRetry={() => void query.refetch()}
          />
        </div>
      )}
      <Tiles stats={stats} isUnknown={query.isError} links={links} />
      <div className="overview-grid">
        <div className="overview-column">
          {stats && (
            <>
              <SpendCard stats={stats} by={by} onStack={(value) => change({ by: value })} links={links} />
              <FailuresCard stats={stats} links={links} />
              <RunsCard stats={stats} links={links} />
            </>
          )}
          {query.isPending && (
            <div className="card">
              <SkeletonRows subject="the overview" rows={8} height={30} />
            </div>
          )}
        </div>
        <div className="overview-column overview-right">
          <NeedsYou />
          {stats && <ToolsCard stats={stats} />}
        </div>
      </div>
    </div>
  );
}

function Tiles({ stats, isUnknown, links }: { stats: Stats | undefined; isUnknown: boolean; links: OverviewLinks }) {
  const now = useNow();
  // The panel shows these too, so that the tile and what it leads to agree.
  const waiting = useKnownWaiting();
  const texts = stats && tileTexts(stats, now);
  const figure = (value: number | undefined) => value?.toLocaleString("en") ?? (isUnknown ? null : undefined);
  const tiles = stats?.tiles;
  const days = stats?.days ?? [];
  return (
    <nav aria-label="Figures" className="tiles">
      <ListLink to={links.running}>
        <TileBody
          label={
            <>
              <StatusSign status="running" className="size-3.5" />
              Running
            </>
          }
          value={figure(tiles?.running)}
          note={texts?.running}
        />
      </ListLink>
      <a
        href={`#${NEEDS_YOU_ID}`}
        className={waiting?.length ? "calls-you" : ""}
        onClick={(event) => {
          event.preventDefault();
          const panel = document.getElementById(NEEDS_YOU_ID);
          panel?.focus();
          panel?.scrollIntoView({ block: "nearest" });
        }}
      >
        <TileBody
          label={
            <>
              <StatusSign status="waiting" className="size-3.5" />
              Waiting for you
            </>
          }
          value={figure(waiting?.length)}
          note={waiting && waitingText(waiting, now)}
        />
      </a>
      <ListLink to={links.failedToday}>
        <TileBody
          label={
            <>
              <StatusSign status="failed" className="size-3.5" />
              Failed today
            </>
          }
          value={figure(tiles?.failed_today)}
          note={texts?.failed}
        >
          <DaySparkline values={days.map(({ failed }) => failed)} label="Failed per day" color="var(--failed)" />
        </TileBody>
      </ListLink>
      <ListLink to={links.today}>
        <TileBody
          label={
            <>
              <Icon name="bolt" className="size-3.5 text-accent" />
              Spent today
            </>
          }
          value={tiles ? formatCents(tiles.spent_today_usd) : figure(undefined)}
          note={texts?.spent}
        >
          <DaySparkline
            values={days.map(({ cost_usd: usd }) => usd ?? 0)}
            label="Spent per day"
            color="var(--accent)"
          />
        </TileBody>
      </ListLink>
    </nav>
  );
}

/** A curve over the days; a curve that is flat, or of a day or two, says nothing. */
function DaySparkline({ values, label, color }: { values: readonly number[]; label: string; color: string }) {
  if (values.length < 3 || new Set(values).size < 2) return null;
  return <Sparkline values={values} label={label} color={color} width={84} height={26} />;
}
