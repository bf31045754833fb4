import { describe, expect, test } from "vitest";
import type { Provider, Host, HostRun, ProviderLimit, QueueGroup } from "../src/api";
import {
  countdown,
  fleetTiles,
  hostFacts,
  hostName,
  hostState,
  limitView,
  missingLabel,
  priorityText,
  providerState,
  reasonTitle,
  slotsOf,
  slotsText,
  sortedHosts,
  sortedProviders,
} from "../src/views/fleet";

const NOW = Date.parse("2026-11-18T12:00:00Z");
const at = (seconds: number) => new Date(NOW + seconds * 1000).toISOString();

const run = (status: HostRun["status"], run_id: string = status): HostRun => ({
  run_id,
  worker: "repair",
  task: "Repair the fence",
  status,
  started_at: at(-60),
  progress: null,
});

const host = (fields: Partial<Host> = {}): Host => ({
  id: "0f3a",
  hostname: "build-1",
  type: "local",
  version: "1",
  location: { type: "docker" },
  capabilities: [],
  labels: {},
  resources: { cpu_cores: 8, memory_mb: 1, disk_gb: 1, gpu_count: null },
  slots: 4,
  slots_used: 0,
  status: "idle",
  responsive: true,
  drain_reason: null,
  drain_deadline: null,
  started_at: at(-100),
  heartbeat_at: at(-4),
  heartbeat_seconds: 30,
  metrics: null,
  cpu_history: [],
  runs: [],
  ...fields,
});

describe("a host", () => {
  test.each([
    [{ status: "idle" }, "idle", "quiet"],
    [{ status: "busy" }, "busy", "running"],
    [{ status: "draining" }, "draining", "running"],
    [{ status: "draining", drain_deadline: at(372) }, "draining, 6m 12s left", "running"],
    [{ status: "draining", drain_deadline: at(-5) }, "draining", "running"],
    [{ status: "busy", responsive: false }, "no heartbeat", "failed"],
    [{ status: "offline", responsive: false }, "offline", "quiet"],
  ] as const)("its state: %j", (fields, text, tone) => expect(hostState(host(fields), NOW)).toEqual({ text, tone }));

  test("where it is, its labels, and its size", () => {
    expect(hostFacts(host({ labels: { gpu: "yes" } }))).toBe("docker · gpu=yes · 8 cores");
    expect(hostFacts(host({ resources: { cpu_cores: 1, memory_mb: 1, disk_gb: 1, gpu_count: null } }))).toBe(
      "docker · 1 core",
    );
  });

  test("a square per slot, running ones first, then free ones", () => {
    const { squares, hidden } = slotsOf(host({ slots_used: 2, runs: [run("waiting"), run("running")] }));
    expect(squares.map((square) => square?.status ?? "free")).toEqual(["running", "waiting", "free", "free"]);
    expect(hidden).toBe(0);
  });

  test("a waiting run that gave its slot back has no square", () => {
    const { squares } = slotsOf(host({ slots_used: 1, runs: [run("waiting"), run("running")] }));
    expect(squares.map((square) => square?.status ?? "free")).toEqual(["running", "free", "free", "free"]);
  });

  test("more runs than slots are all drawn; more slots than fit are counted; a host that is gone has none", () => {
    expect(
      slotsOf(host({ slots: 1, slots_used: 2, runs: [run("running", "a"), run("running", "b")] })).squares,
    ).toHaveLength(2);
    const many = slotsOf(host({ slots: 64 }));
    expect(many.squares.length + many.hidden).toBe(64);
    expect(many.hidden).toBeGreaterThan(0);
    expect(slotsOf(host({ status: "offline" }))).toEqual({ squares: [], hidden: 0 });
  });

  test("what its slots are used for", () => {
    expect(slotsText(host())).toBe("free");
    expect(slotsText(host({ runs: [run("running"), run("waiting")] }))).toBe("1 running, 1 waiting");
    expect(slotsText(host({ status: "draining", runs: [run("running")] }))).toBe("1 running, takes no more");
    expect(slotsText(host({ status: "draining" }))).toBe("takes no more");
  });

  test("hosts of one machine are told apart by their id", () => {
    const hosts = [
      host({ id: "local-aaaa" }),
      host({ id: "local-bbbb" }),
      host({ id: "local-cccc", hostname: "other" }),
    ];
    expect(hosts.map((each) => hostName(each, hosts))).toEqual(["build-1 aaaa", "build-1 bbbb", "other"]);
  });

  test("hosts that are gone come last", () => {
    const hosts = [host({ hostname: "a", status: "offline" }), host({ hostname: "c" }), host({ hostname: "b" })];
    expect(sortedHosts(hosts).map(({ hostname }) => hostname)).toEqual(["b", "c", "a"]);
  });
});

test("the figures of all hosts leave out those that are gone", () => {
  const hosts = [
    host({ runs: [run("running"), run("waiting"), run("waiting")], slots_used: 2, status: "busy" }),
    host({ status: "draining" }),
    host({ responsive: false }),
    host({ status: "offline", slots: 99 }),
  ];
  expect(fleetTiles(hosts)).toEqual({
    hosts: 3,
    hostsText: "1 up · 1 draining · 1 silent",
    slots: 12,
    used: 2,
    waiting: 1,
  });
  expect(fleetTiles([])).toEqual({ hosts: 0, hostsText: "0 up", slots: 0, used: 0, waiting: 0 });
});

const provider = (fields: Partial<Provider> = {}) =>
  ({
    name: "codex",
    kind: "agent",
    path: "/bin/codex",
    login: "file",
    status: "available",
    reason: null,
    error: null,
    estimated_recovery: null,
    limits: [],
    ...fields,
  }) as Provider;

describe("a provider", () => {
  test.each([
    [{}, "available", "done"],
    [{ status: "rate_limited", reason: "rate_limited" }, "limit met", "running"],
    [{ status: "unavailable", reason: "error" }, "unavailable", "failed"],
    [{ status: "disabled", reason: "disabled" }, "off", "quiet"],
    [{ status: "disabled", reason: "maintenance" }, "off for maintenance", "quiet"],
    [{ status: "unavailable", path: null, login: null }, "not set up", "quiet"],
  ] as const)("its state: %j", (fields, text, tone) =>
    expect(providerState(provider(fields))).toMatchObject({ text, tone }),
  );

  test("those that nobody set up come last", () => {
    const missing = { path: null, login: null } as const;
    const names = sortedProviders([
      provider({ name: "a", ...missing, status: "unavailable" }),
      provider({ name: "b", ...missing, status: "disabled" }),
      provider({ name: "c" }),
    ]).map(({ name }) => name);
    expect(names).toEqual(["c", "b", "a"]);
  });
});

describe("a limit", () => {
  const clock = () => "11:31";
  const limit = (fields: Partial<ProviderLimit>): ProviderLimit => ({
    kind: "requests",
    name: "5 hours",
    current: null,
    max: null,
    reset_at: null,
    status: null,
    met_at: at(-1740),
    ...fields,
  });
  test.each([
    [{ current: 0.82, max: 1, reset_at: at(6480), status: "warning" }, 82, "82 % · resets in 1h 48m", "running"],
    [{ current: 0.4, max: 1, status: "allowed" }, 40, "40 %", "quiet"],
    [{ current: 0.99, max: 1, status: "rejected" }, 99, "met 11:31", "failed"],
    [{ current: 340, max: 1000, status: "allowed" }, 34, "340 of 1,000", "quiet"],
    [{ current: 268_000, max: 400_000, status: "allowed" }, 67, "268k of 400k", "quiet"],
    [{ current: 1, max: 1, reset_at: at(60), status: "rejected" }, 100, "met 11:31 · resets in 1m 00s", "failed"],
    [{ current: 7, max: 5, status: "rejected" }, 100, "met 11:31", "failed"],
    [{}, null, "met 11:31", "failed"],
    [{ status: "rejected" }, null, "met 11:31", "failed"],
    [{ status: "warning" }, null, "close to the limit", "running"],
    [{ status: "allowed" }, null, "within the limit", "quiet"],
    [{ current: 1, max: 0 }, null, "met 11:31", "failed"],
    [{ current: 1, max: 1, reset_at: at(-1) }, null, "reset 11:31", "quiet"],
  ] as const)("%j", (fields, percent, text, tone) =>
    expect(limitView(limit(fields), NOW, clock)).toEqual({ name: "5 hours", percent, text, tone }),
  );

  test("without a name, its kind", () => {
    expect(limitView(limit({ name: null, kind: "tokens" }), NOW, clock).name).toBe("Tokens");
  });
});

test.each([
  [4329, "1:12:09"],
  [245, "4:05"],
  [9, "0:09"],
  [0.4, "0:01"],
  [-3, "0:00"],
])("%d seconds count down as %s", (seconds, text) => expect(countdown(at(seconds), NOW)).toBe(text));

describe("the queue", () => {
  const group = (fields: Partial<QueueGroup>): QueueGroup => ({
    reason: "slots",
    message: "waits for a free slot",
    total: 4,
    runs: [],
    ...fields,
  });
  test("a group names what is missing", () => {
    expect(reasonTitle(group({}))).toBe("Waits for a free slot");
    expect(reasonTitle(group({ reason: "provider", message: "codex is at its limit" }))).toBe("codex is at its limit");
    expect(missingLabel(group({ reason: "labels", message: "no host has the label gpu=yes" }))).toBe("gpu=yes");
    expect(missingLabel(group({ message: "no host has the label gpu=yes" }))).toBeNull();
    expect(missingLabel(group({ reason: "labels", message: "no host" }))).toBeNull();
  });
  test("a priority is shown unless it is the usual one", () => {
    expect([0, 10, -5].map(priorityText)).toEqual([null, "+10", "−5"]);
  });
});
