import { InfiniteQueryObserver, QueryClient, QueryObserver } from "@tanstack/react-query";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { removeRuns, patchRuns } from "../src/api/cacheUpdates";
import type { Pages } from "../src/api/runPages";
import type { RunFilter } from "../src/api/requests";
import type { Run, RunList } from "../src/api/types";
import { aRun } from "./runs";

let queries: QueryClient;
const key = (filter: RunFilter) => ["runs", filter];
const shown = (filter: RunFilter) =>
  queries.getQueryData<Pages>(key(filter))?.pages.flatMap((page) => page.workers.map((run) => run.id));

/** Observe a list whose responses the test controls. */
function looksAt(filter: RunFilter, answer: (cursor: string | null) => RunList | Promise<RunList>) {
  const fetchMock = vi.fn(answer);
  const observer = new InfiniteQueryObserver(queries, {
    queryKey: key(filter),
    queryFn: ({ pageParam }) => fetchMock(pageParam),
    initialPageParam: null as string | null,
    getNextPageParam: (last: RunList) => last.next,
    staleTime: Infinity,
  });
  const stop = observer.subscribe(() => undefined);
  return { fetchMock: fetchMock, observer, stop };
}

const page = (workers: Run[], next: string | null = null): RunList => ({ workers, next, total: workers.length });
const old = aRun({ id: "old", started_at: "2026-01-01T11:00:00.000Z" });
const young = aRun({ id: "young", started_at: "2026-01-01T13:00:00.000Z", status: "running", completed_at: null });

beforeEach(() => {
  vi.useFakeTimers();
  queries = new QueryClient();
});
afterEach(() => {
  queries.clear();
  vi.useRealTimers();
});

test("a new run appears in the lists that it belongs to", async () => {
  looksAt({}, () => page([old]));
  looksAt({ status: "failed" }, () => page([]));
  await vi.advanceTimersByTimeAsync(0);
  patchRuns(queries, [young]);
  expect([shown({}), shown({ status: "failed" })]).toEqual([["young", "old"], []]);
  patchRuns(queries, [{ ...young, status: "failed" }]);
  expect([shown({}), shown({ status: "failed" })]).toEqual([["young", "old"], ["young"]]);
});

test("the newest state of a run counts", async () => {
  looksAt({}, () => page([old]));
  await vi.advanceTimersByTimeAsync(0);
  patchRuns(queries, [young, { ...young, status: "done" }]);
  expect(queries.getQueryData<Pages>(key({}))?.pages[0]?.workers[0]?.status).toBe("done");
});

test("what changes while a page is loaded is not lost when it comes", async () => {
  const { observer } = looksAt({}, (cursor) =>
    cursor === null
      ? page([old], "next")
      : new Promise((done) => setTimeout(() => done(page([aRun({ id: "older", started_at: "2026" })])), 100)),
  );
  await vi.advanceTimersByTimeAsync(0);
  void observer.fetchNextPage();
  await vi.advanceTimersByTimeAsync(50);
  patchRuns(queries, [young]);
  expect(shown({})).toEqual(["young", "old"]);
  await vi.advanceTimersByTimeAsync(60);
  expect(shown({})).toEqual(["young", "old", "older"]);
});

test("what changes before the first answer is there, too", async () => {
  looksAt({}, () => new Promise((done) => setTimeout(() => done(page([old])), 100)));
  await vi.advanceTimersByTimeAsync(50);
  patchRuns(queries, [young]);
  await vi.advanceTimersByTimeAsync(60);
  expect(shown({})).toEqual(["young", "old"]);
});

test("a search is asked for again now and then, not for each row", async () => {
  const { fetchMock: fetchMock } = looksAt({ q: "hello" }, () => page([old]));
  await vi.advanceTimersByTimeAsync(0);
  for (let n = 0; n < 5; n++) {
    patchRuns(queries, [young]);
    await vi.advanceTimersByTimeAsync(1_000);
  }
  expect([fetchMock.mock.calls.length, shown({ q: "hello" })]).toEqual([1, ["old"]]);
  await vi.advanceTimersByTimeAsync(10_000);
  expect(fetchMock).toHaveBeenCalledTimes(2);
});

test("a list that was to be asked for again still is, after a row of it has changed", async () => {
  const { fetchMock: fetchMock, stop } = looksAt({}, () => page([old]));
  await vi.advanceTimersByTimeAsync(0);
  stop();
  await queries.invalidateQueries({ queryKey: ["runs"] });
  patchRuns(queries, [young]);
  expect(queries.getQueryState(key({}))?.isInvalidated).toBe(true);
  looksAt({}, fetchMock);
  await vi.advanceTimersByTimeAsync(0);
  expect(fetchMock).toHaveBeenCalledTimes(2);
});

test("a run that is looked at has what its row says, and is asked for again when it ends", async () => {
  const fetchMock = vi.fn(() => ({ ...young, result: null, last_seq: 3 }));
  new QueryObserver(queries, { queryKey: ["run", "young"], queryFn: fetchMock, staleTime: Infinity }).subscribe(
    () => undefined,
  );
  await vi.advanceTimersByTimeAsync(0);
  patchRuns(queries, [{ ...young, event_count: 9 }]);
  expect(queries.getQueryData(["run", "young"])).toMatchObject({ event_count: 9, last_seq: 3 });
  await vi.advanceTimersByTimeAsync(0);
  expect(fetchMock).toHaveBeenCalledTimes(1);
  patchRuns(queries, [{ ...young, status: "done" }]);
  await vi.advanceTimersByTimeAsync(0);
  expect(fetchMock).toHaveBeenCalledTimes(2);
});

test("a run that ends while its details are loaded for the first time is asked for again", async () => {
  const answers = [
    { ...young, result: null },
    { ...young, status: "done", completed_at: "2026", result: "tea" },
  ];
  const fetchMock = vi.fn(
    () => new Promise((done) => setTimeout(() => done(answers[fetchMock.mock.calls.length - 1]), 100)),
  );
  new QueryObserver(queries, { queryKey: ["run", "young"], queryFn: fetchMock, staleTime: Infinity }).subscribe(
    () => undefined,
  );
  await vi.advanceTimersByTimeAsync(50);
  patchRuns(queries, [{ ...young, status: "done", completed_at: "2026" }]);
  await vi.advanceTimersByTimeAsync(200);
  expect(queries.getQueryData(["run", "young"])).toMatchObject({ status: "done", result: "tea" });
  expect(fetchMock).toHaveBeenCalledTimes(2);
});

test("a row from before the end of a run does not start it again", () => {
  queries.setQueryData(["run", "young"], { ...young, status: "done", completed_at: "2026", result: "tea" });
  patchRuns(queries, [young]);
  expect(queries.getQueryData(["run", "young"])).toMatchObject({ status: "done", result: "tea" });
});

test("a run that was deleted while somebody looks at it is said to be gone, and not asked for", async () => {
  const fetchMock = vi.fn(() => old);
  const observer = new QueryObserver(queries, { queryKey: ["run", "old"], queryFn: fetchMock, staleTime: Infinity });
  const listener = vi.fn();
  observer.subscribe(listener);
  await vi.advanceTimersByTimeAsync(0);
  expect(observer.getCurrentResult().data).toEqual(old);
  listener.mockClear();
  removeRuns(queries, ["old"]);
  await vi.advanceTimersByTimeAsync(0);
  expect(listener).toHaveBeenCalled();
  expect(observer.getCurrentResult()).toMatchObject({ data: undefined, isPending: false, error: { status: 404 } });
  expect(fetchMock).toHaveBeenCalledTimes(1);
});

test("runs that were deleted are in no list", async () => {
  looksAt({}, () => page([young, old]));
  await vi.advanceTimersByTimeAsync(0);
  queries.setQueryData(["run", "old"], old);
  removeRuns(queries, ["old"]);
  expect(shown({})).toEqual(["young"]);
  expect(queries.getQueryData(["run", "old"])).toBeUndefined();
});

test("what waits for a person is asked for again during a storm of failures", async () => {
  const answer = vi.fn(() => new Promise((done) => setTimeout(() => done({ items: [] }), 100)));
  new QueryObserver(queries, { queryKey: ["waiting"], queryFn: answer, staleTime: Infinity }).subscribe(
    () => undefined,
  );
  await vi.advanceTimersByTimeAsync(100);
  const answered = queries.getQueryState(["waiting"])?.dataUpdatedAt ?? 0;
  for (let n = 0; n < 40; n++) {
    patchRuns(queries, [{ ...young, id: `failed ${n}`, status: "failed" }]);
    await vi.advanceTimersByTimeAsync(50);
  }
  const { dataUpdatedAt = 0, dataUpdateCount = 0 } = queries.getQueryState(["waiting"]) ?? {};
  expect(dataUpdatedAt).toBeGreaterThan(answered + 1_000);
  // Neither for each row, nor never.
  expect(dataUpdateCount).toBeGreaterThan(3);
  expect(answer.mock.calls.length).toBeLessThan(12);
});
