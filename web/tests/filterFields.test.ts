import { describe, expect, test } from "vitest";
import type { Address } from "../src/views/addressParameters";
import { filterFields, type FilterSources, menuEntries, parseMoney, parseSeconds } from "../src/views/filterFields";
import { aRun } from "./runs";

const NOW = Date.parse("2026-11-18T12:00:30.000Z");
const sources: FilterSources = {
  workers: undefined,
  channels: [{ id: "C1", name: "#dev" }],
  seenRuns: [aRun({ model: "opus", provider: "anthropic" }), aRun({ error: { code: "timeout", message: null } })],
  stats: undefined,
};
const fieldsOf = (address: Partial<Address> = {}) => filterFields({ owner: undefined, ...address }, sources, NOW);
const labels = (opened: string | null, text = "", address: Partial<Address> = {}) =>
  menuEntries(fieldsOf(address), opened, text).map(({ label }) => label);

describe("the menu of filters", () => {
  test("lists the fields first, with what they filter by now", () => {
    const entries = menuEntries(fieldsOf({ model: "opus", minCost: 1 }), null, "");
    expect(entries.map(({ label }) => label)).toEqual([
      "Time",
      "Ended",
      "Worker",
      "Model",
      "Provider",
      "Channel",
      "Cost",
      "Duration",
      "Error",
    ]);
    expect(entries.filter(({ isSet }) => isSet).map(({ detail }) => detail)).toEqual(["opus", "at least $1.00"]);
  });

  test("lists the choices of a field", () => {
    expect(labels("Model")).toEqual(["opus"]);
    expect(labels("Channel")).toEqual(["#dev", "page"]);
    expect(labels("Error")).toEqual(["timeout"]);
    expect(labels("Cost")).toContain("At least $1.00");
    expect(labels("Duration")).toContain("At least 10m");
  });

  test("finds fields and choices by a text", () => {
    expect(labels(null, "opu")).toEqual(["opus"]);
    expect(labels(null, "ch")).toEqual(["Channel"]);
    expect(labels(null, "nothing like this")).toEqual([]);
  });

  test("understands what is typed in a field", () => {
    expect(labels("Cost", "2.5")).toEqual(["At least $2.50", "At most $2.50"]);
    expect(labels("Duration", "90s")).toEqual(["At least 1m 30s", "At most 1m 30s"]);
    expect(labels("Time", "3h")).toEqual(["Last 3 hours"]);
    expect(labels("Time", "2026-11-06")).toEqual(["On Fri 6 Nov", "Since Fri 6 Nov", "Before Fri 6 Nov"]);
    expect(labels("Model", "other")).toEqual(["other"]);
    expect(labels("Cost", "much")).toEqual([]);
    expect(labels("Time", "2026-99-99")).toEqual([]);
  });

  test("sets a filter, and removes the one that is set", () => {
    const choice = (address: Partial<Address>) => menuEntries(fieldsOf(address), "Model", "opus")[0];
    expect(choice({})).toMatchObject({ isSet: false, target: { change: { model: "opus" } } });
    expect(choice({ model: "opus" })).toMatchObject({ isSet: true, target: { change: { model: undefined } } });
    const [hour] = menuEntries(fieldsOf(), "Time", "Last hour");
    expect(hour?.target).toEqual({ change: { since: "1h", until: undefined } });
    expect(menuEntries(fieldsOf({ since: "1h" }), "Time", "1h")[0]).toMatchObject({ isSet: true });
    const [ended] = menuEntries(fieldsOf(), "Ended", "last 24");
    expect(ended?.target).toEqual({ change: { endedSince: "24h", endedUntil: undefined } });
  });

  test("lists a choice once that is both usual and typed", () => {
    const keys = menuEntries(fieldsOf(), "Cost", "1").map(({ key }) => key);
    expect(labels("Cost", "1")).toEqual(["At least $0.10", "At least $1.00", "At most $0.10", "At most $1.00"]);
    expect(new Set(keys).size).toBe(keys.length);
  });
});

test("amounts as people write them", () => {
  expect([parseMoney("2.5"), parseMoney("$ 3"), parseMoney("-1"), parseMoney("1e9")]).toEqual([2.5, 3, null, null]);
  expect([parseSeconds("90"), parseSeconds("15m"), parseSeconds("1.5H"), parseSeconds("2w")]).toEqual([
    90,
    900,
    5_400,
    null,
  ]);
});
