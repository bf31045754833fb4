/** Queries for the sub-runs of every run that is expanded in the tree. */
import { InfiniteQueryObserver, type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState, useSyncExternalStore } from "react";
import { runsQuery } from "@/api";
import { type Branch, runsOf } from "@/views/runRows";

type Observer = ReturnType<typeof observe>;
const observe = (queries: QueryClient, parent: string) => new InfiniteQueryObserver(queries, runsQuery({ parent }));

class Branches {
  #open = new Map<string, { observer: Observer; stop: () => void }>();
  #listeners = new Set<() => void>();
  #now: ReadonlyMap<string, Branch> = new Map();

  constructor(readonly queries: QueryClient) {}

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  now = () => this.#now;

  /** Watch exactly these parents; poll every `everyMs` milliseconds. */
  watch(parents: ReadonlySet<string>, everyMs: number | false): void {
    for (const [parent, { stop }] of this.#open) {
      if (parents.has(parent)) continue;
      stop();
      this.#open.delete(parent);
    }
    for (const parent of parents) {
      const observer = this.#open.get(parent)?.observer ?? this.#add(parent);
      observer.setOptions({ ...runsQuery({ parent }), refetchInterval: everyMs });
    }
    this.#tell();
  }

  stop(): void {
    for (const { stop } of this.#open.values()) stop();
    this.#open.clear();
  }

  more = (parent: string) => void this.#open.get(parent)?.observer.fetchNextPage();
  again = (parent: string) => void this.#open.get(parent)?.observer.refetch();

  #add(parent: string): Observer {
    const observer = observe(this.queries, parent);
    const stop = observer.subscribe(() => this.#tell());
    this.#open.set(parent, { observer, stop });
    return observer;
  }

  #tell(): void {
    this.#now = new Map(
      [...this.#open].map(([parent, { observer }]) => [parent, branchOf(observer.getCurrentResult())]),
    );
    for (const listener of this.#listeners) listener();
  }
}

function branchOf({
  data,
  isError,
  hasNextPage,
  isFetchingNextPage,
}: ReturnType<Observer["getCurrentResult"]>): Branch {
  if (!data) return { runs: [], state: isError ? "trouble" : "loading" };
  return { runs: runsOf(data.pages), state: isFetchingNextPage ? "loading" : hasNextPage ? "more" : "whole" };
}

export function useBranches(parents: ReadonlySet<string>, everyMs: number | false) {
  const queries = useQueryClient();
  const [branches] = useState(() => new Branches(queries));
  useEffect(() => branches.watch(parents, everyMs), [branches, parents, everyMs]);
  useEffect(() => () => branches.stop(), [branches]);
  return {
    branches: useSyncExternalStore(branches.subscribe, branches.now),
    more: branches.more,
    again: branches.again,
  };
}
