import { useQuery } from "@tanstack/react-query";
import clsx from "clsx";
import { useId } from "react";
import { channelsQuery, type Run, type Status, workersQuery } from "@/api";
import { StatusSign } from "@/components/ui/Badge";
import { buttonClass } from "@/components/ui/Button";
import { Count } from "@/components/ui/Count";
import { Icon } from "@/components/ui/Icon";
import { useChangeAddress, useAddress } from "@/useAddress";
import { STATUSES } from "@/router";
import { isFiltered, NO_FILTER } from "@/views/addressParameters";
import { formatCount } from "@/views/amounts";
import { filterChips } from "@/views/filterChips";
import { channelOptions, type FilterOption, workerOptions } from "@/views/filterOptions";

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

/** A button that opens the filters by worker and channel. */
export function FilterMenu({ seenRuns }: { seenRuns: readonly Run[] }) {
  const id = useId();
  const address = useAddress();
  const changeAddress = useChangeAddress();
  const workers = useQuery(workersQuery).data;
  const channels = useQuery(channelsQuery).data?.channels;
  const count = [address.of, address.channel, address.flat].filter(Boolean).length;
  return (
    <>
      <button
        type="button"
        popoverTarget={id}
        aria-label="Filters"
        title="Filter by worker or channel"
        className={buttonClass(
          "plain",
          clsx("filter-anchor min-w-(--control-h) px-1.5", count > 0 && "text-accent-text"),
        )}
      >
        <Icon name="filter" className={clsx("size-3.5", count === 0 && "text-icon")} />
        {count > 0 && <Count text={String(count)} />}
      </button>
      <div
        id={id}
        popover="auto"
        role="dialog"
        aria-label="Filters"
        className="filter-menu w-72 flex-col gap-3 rounded-3 border border-border bg-bg-pop p-3 text-text shadow-(--shadow-2) open:flex"
      >
        <Select
          label="Worker"
          allLabel="All workers"
          value={address.of}
          options={workerOptions(workers, seenRuns, address.of)}
          onSelect={(of) => changeAddress({ of })}
        />
        <Select
          label="Channel"
          allLabel="All channels"
          value={address.channel}
          options={channelOptions(channels, seenRuns, address.channel)}
          onSelect={(channel) => changeAddress({ channel })}
        />
        <label className="flex items-center gap-2">
          <input
            type="checkbox"
            checked={address.flat === true}
            onChange={(event) => changeAddress({ flat: event.target.checked })}
            className="size-4 accent-accent"
          />
          List sub-runs like all other runs
        </label>
      </div>
    </>
  );
}

interface SelectProps {
  label: string;
  allLabel: string;
  value: string | undefined;
  options: readonly FilterOption[];
  onSelect: (value: string | undefined) => void;
}

function Select({ label, allLabel, value, options, onSelect }: SelectProps) {
  return (
    <label className="flex flex-col gap-1 text-11 text-text-3">
      {label}
      <select
        aria-label={label}
        value={value ?? ""}
        onChange={(event) => onSelect(event.target.value || undefined)}
        className="h-(--control-h) min-w-0 rounded-2 border border-border-strong bg-bg-pop px-1.5 text-12 text-text"
      >
        <option value="">{allLabel}</option>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    </label>
  );
}

/** The filters in effect, each with a button that removes it. */
export function FilterChips({ seenRuns }: { seenRuns: readonly Run[] }) {
  const address = useAddress();
  const changeAddress = useChangeAddress();
  const channels = useQuery(channelsQuery).data?.channels;
  if (!isFiltered(address)) return null;
  const channel = channelOptions(channels, seenRuns, address.channel).find(({ value }) => value === address.channel);
  return (
    <div className="flex flex-wrap items-center gap-1.5">
      {address.of !== undefined && (
        <Chip text={`Worker is ${address.of}`} onRemove={() => changeAddress({ of: undefined })} />
      )}
      {filterChips(address).map(({ key, text, change }) => (
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
