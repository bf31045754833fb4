import { describe, expect, test } from "vitest";
import type { Provider } from "@/api";
import { unavailableReason } from "@/views/providers";

const AGENT: Provider = {
  name: "codex",
  kind: "agent",
  program: "codex",
  path: "/bin/codex",
  login: "a file",
  install: "install codex",
  capabilities: {},
};
const API: Provider = { name: "openai", kind: "api", login: null, install: "set OPENAI_API_KEY", capabilities: {} };

describe("what a provider needs before it can be used", () => {
  test.each([
    [{ ...AGENT, path: null, login: null }, "To install it: install codex"],
    [{ ...AGENT, problem: "it crashes" }, "it crashes"],
    [{ ...AGENT, login: null }, "start `codex` once"],
    [API, "Not logged in: set OPENAI_API_KEY"],
  ])("%j", (provider, reason) =>
    expect(unavailableReason(provider.name, { providers: [provider], usable: [] })).toContain(reason),
  );

  test("is nothing where it can be, or nothing is known of it", () => {
    expect(unavailableReason("codex", { providers: [AGENT], usable: ["codex"] })).toBeNull();
    expect(unavailableReason("mine", { providers: [AGENT], usable: [] })).toBeNull();
    expect(unavailableReason("codex", undefined)).toBeNull();
  });
});
