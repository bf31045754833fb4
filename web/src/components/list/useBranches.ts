/** Queries for the sub-runs of every run that is expanded in the tree. */
import { InfiniteQueryObserver, type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState, useSyncExternalStore } from "react";
import { runsQuery } from "@/api";
import { type Branch, runsOf } from "@/views/runRows";

type Observer = ReturnType<typeof observe>;
const observe = (queries: QueryClient, parent: string) => new InfiniteQueryObserver(queries, runsQuery({ parent }));

class Branches {
  #watched = new Map<string, { observer: Observer; stop: () => void }>();
  #listeners = new Set<() => void>();
  #snapshot: ReadonlyMap<string, Branch> = new Map();

  constructor(readonly queries: QueryClient) {}

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  snapshot = () => this.#snapshot;

  /** Watch exactly these parents; poll every `pollEveryMs` milliseconds. */
  watch(parents: ReadonlySet<string>, pollEveryMs: number | false): void {
    for (const [parent, { stop }] of this.#watched) {
      if (parents.has(parent)) continue;
      stop();
      this.#watched.delete(parent);
    }
    for (const parent of parents) {
      const observer = this.#watched.get(parent)?.observer ?? this.#add(parent);
      observer.setOptions({ ...runsQuery({ parent }), refetchInterval: pollEveryMs });
    }
    this.#notify();
  }

  stop(): void {
    for (const { stop } of this.#watched.values()) stop();
    this.#watched.clear();
  }

  loadMore = (parent: string) => void this.#watched.get(parent)?.observer.fetchNextPage();
  retry = (parent: string) => void this.#watched.get(parent)?.observer.refetch();

  #add(parent: string): Observer {
    const observer = observe(this.queries, parent);
    const stop = observer.subscribe(() => this.#notify());
    this.#watched.set(parent, { observer, stop });
    return observer;
  }

  #notify(): void {
    this.#snapshot = new Map(
      [...this.#watched].map(([parent, { observer }]) => [parent, branchOf(observer.getCurrentResult())]),
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
  if (!data) return { runs: [], state: isError ? "error" : "loading" };
  return { runs: runsOf(data.pages), state: isFetchingNextPage ? "loading" : hasNextPage ? "more" : "complete" };
}

export function useBranches(parents: ReadonlySet<string>, pollEveryMs: number | false) {
  const queries = useQueryClient();
  const [branches] = useState(() => new Branches(queries));
  useEffect(() => branches.watch(parents, pollEveryMs), [branches, parents, pollEveryMs]);
  useEffect(() => () => branches.stop(), [branches]);
  return {
    branches: useSyncExternalStore(branches.subscribe, branches.snapshot),
    loadMore: branches.loadMore,
    retry: branches.retry,
  };
}
