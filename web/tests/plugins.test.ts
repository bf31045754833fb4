import { describe, expect, test } from "vitest";
import type { Plugin, Worker } from "@/api";
import {
  acceptsTasks,
  messageParts,
  pluginStateLabel,
  pluginWorkers,
  stateReason,
  titleOfPlugin,
} from "@/views/plugins";

const COUNTER: Plugin = {
  name: "counter",
  folder: "/p/counter",
  status: "ready",
  display_name: "Counter",
  description: "Counts.",
  version: "0.1.0",
  capabilities: ["worker"],
};
const TOOLS: Plugin = { name: "tools", folder: "/p/tools", status: "ready" };
const STRANGER: Plugin = {
  ...COUNTER,
  name: "stranger",
  status: "not_allowed",
  error: "run `shopfloor plugins allow /p/stranger` once to allow it",
};
const worker = (slug: string, worker_type: string): Worker => ({
  slug,
  worker_type,
  project: null,
  name: null,
  description: null,
  input_schema: { properties: { task: { type: "string" } } },
  tools: [],
  client_tools: [],
});

describe("the workers of plugins", () => {
  test("are those of the server, and an entry for each plugin that cannot be used", () => {
    const known = worker("counter", "plugin");
    const found = pluginWorkers([worker("hello", "builtin"), known], [COUNTER, TOOLS, STRANGER]);
    expect(found.map(({ slug }) => slug)).toEqual(["counter", "stranger"]);
    expect(found[0]).toBe(known);
    expect(found[1]).toMatchObject({ name: "Counter", description: "Counts.", input_schema: {} });
  });

  test("leave out a plugin whose name another worker has", () =>
    expect(pluginWorkers([worker("counter", "builtin")], [COUNTER])).toEqual([]));

  test("are shown while the state of the plugins is unknown", () =>
    expect(pluginWorkers([worker("counter", "plugin")], [])).toHaveLength(1));

  test("are plugins with the capability", () => expect([COUNTER, TOOLS].map(acceptsTasks)).toEqual([true, false]));
});

describe("the state of a plugin", () => {
  test.each([
    ["ready", null, null],
    ["stopped", null, "It starts when a run needs it."],
    ["starting", "starting", "It is starting. A run waits until it is ready."],
    ["error", "error", "It crashed."],
    ["not_allowed", "not allowed", "It crashed."],
  ] as const)("%s", (status, label, reason) => {
    const plugin = { ...COUNTER, status, error: status === "error" || status === "not_allowed" ? "It crashed." : null };
    expect(pluginStateLabel(plugin)).toBe(label);
    expect(stateReason(plugin)).toBe(reason);
  });

  test("is nothing while it is unknown", () => expect(pluginStateLabel(undefined)).toBeNull());
});

test("a plugin without a title is called by its name", () =>
  expect([COUNTER, TOOLS].map(titleOfPlugin)).toEqual(["Counter", "tools"]));

describe("a message with commands", () => {
  test("has the commands apart", () =>
    expect(messageParts(STRANGER.error ?? "")).toEqual([
      { text: "run ", isCode: false },
      { text: "shopfloor plugins allow /p/stranger", isCode: true },
      { text: " once to allow it", isCode: false },
    ]));

  test("may end with a command, or lack the second backquote", () => {
    expect(messageParts("run `x`").map(({ isCode }) => isCode)).toEqual([false, true]);
    expect(messageParts("a ` b")).toEqual([{ text: "a ` b", isCode: false }]);
  });
});
