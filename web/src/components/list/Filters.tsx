import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { channelsQuery, type Run, type Status } from "@/api";
import { StatusSign } from "@/components/ui/Badge";
import { Count } from "@/components/ui/Count";
import { useChangeAddress, useAddress } from "@/useAddress";
import { STATUSES } from "@/router";
import { NO_FILTER } from "@/views/addressParameters";
import { formatCount } from "@/views/amounts";
import { filterChips } from "@/views/filterChips";
import { channelOptions } from "@/views/filterOptions";

const PILLS: readonly (Status | undefined)[] = [undefined, ...STATUSES];
/** Runs by status, and in total under `all`. */
export type StatusCounts = Readonly<Partial<Record<Status | "all", number>>>;

/** The statuses to filter by, in one row: icon and count. */
export function StatusPills({ counts }: { counts: StatusCounts | undefined }) {
  const address = useAddress();
  const changeAddress = useChangeAddress();
  return (
    <div role="group" aria-label="Status" className="flex justify-between">
      {PILLS.map((status) => (
        <Pill
          key={status ?? "all"}
          status={status}
          count={counts?.[status ?? "all"]}
          isActive={address.status === status}
          onSelect={() => changeAddress({ status })}
        />
      ))}
    </div>
  );
}

interface PillProps {
  status: Status | undefined;
  count: number | undefined;
  isActive: boolean;
  onSelect: () => void;
}

function Pill({ status, count, isActive, onSelect }: PillProps) {
  const word = status ?? "all";
  const name = `${word.charAt(0).toUpperCase()}${word.slice(1)}`;
  return (
    <button
      type="button"
      aria-pressed={isActive}
      aria-label={name}
      title={count === undefined ? name : `${name}: ${count.toLocaleString("en")}`}
      onClick={onSelect}
      className={clsx(
        "flex h-6 min-w-8 items-center justify-center gap-1 rounded-2 px-1.5 text-12 tabular-nums coarse:h-9",
        isActive ? "bg-bg-press font-medium text-text" : "text-text-2 hover:bg-bg-hover",
      )}
    >
      {status === undefined ? name : <StatusSign status={status} className="size-[13px] stroke-2" />}
      {count !== undefined && <Count text={formatCount(count)} />}
    </button>
  );
}

/** The filters in effect, each with a button that removes it. */
export function FilterChips({ seenRuns }: { seenRuns: readonly Run[] }) {
  const address = useAddress();
  const changeAddress = useChangeAddress();
  const channels = useQuery(channelsQuery).data?.channels;
  const channel = channelOptions(channels, seenRuns, address.channel).find(({ value }) => value === address.channel);
  const chips = filterChips(address);
  // The search and the status are cleared where they are set: no line appears for them.
  if (chips.length === 0 && !channel) return null;
  return (
    <div className="flex flex-wrap items-center gap-1.5">
      {chips.map(({ key, text, change }) => (
        <Chip key={key} text={text} onRemove={() => changeAddress(change)} />
      ))}
      {channel && <Chip text={`Channel is ${channel.label}`} onRemove={() => changeAddress({ channel: undefined })} />}
      <button
        type="button"
        title="Clear all filters"
        onClick={() => changeAddress(NO_FILTER)}
        className="px-1 text-12 text-accent-text hover:underline"
      >
        Clear
      </button>
    </div>
  );
}

function Chip({ text, onRemove }: { text: string; onRemove: () => void }) {
  return (
    <button
      type="button"
      title="Remove this filter"
      onClick={onRemove}
      className="flex h-5 max-w-full items-center gap-1 rounded-1 bg-n-4 px-1.5 text-11 font-medium text-text-2 hover:bg-n-6"
    >
      <span className="truncate">{text}</span>
      <span aria-hidden>×</span>
    </button>
  );
}
