import { describe, expect, test } from "vitest";
import type { Provider } from "@/api";
import { unavailableLabel, unavailableReason } from "@/views/providers";

const KNOWN = {
  status: "available",
  reason: null,
  error: null,
  estimated_recovery: null,
  disabled_by: null,
  disabled_at: null,
  checked_at: null,
  limits: [],
} satisfies Partial<Provider>;
const AGENT: Provider = {
  ...KNOWN,
  name: "codex",
  kind: "agent",
  program: "codex",
  path: "/bin/codex",
  login: "a file",
  install: "install codex",
  capabilities: {},
};
const API: Provider = {
  ...KNOWN,
  name: "openai",
  kind: "api",
  login: null,
  install: "set OPENAI_API_KEY",
  capabilities: {},
};
const DISABLED: Provider = { ...AGENT, status: "disabled", reason: "maintenance", error: "moved", disabled_by: "ada" };

describe("what a provider needs before it can be used", () => {
  test.each([
    [{ ...AGENT, path: null, login: null }, "To install it: install codex"],
    [{ ...AGENT, problem: "it crashes" }, "it crashes"],
    [{ ...AGENT, login: null }, "start `codex` once"],
    [DISABLED, "Disabled for maintenance by ada: moved"],
    [API, "Not logged in: set OPENAI_API_KEY"],
  ])("%j", (provider, reason) =>
    expect(unavailableReason(provider.name, { providers: [provider], usable: [] })).toContain(reason),
  );

  test("is said in lists in a word or two", () => {
    expect(unavailableLabel("codex", { providers: [DISABLED], usable: [] })).toBe("disabled");
    expect(unavailableLabel("openai", { providers: [API], usable: [] })).toBe("not available");
    expect(unavailableLabel("codex", { providers: [AGENT], usable: ["codex"] })).toBeNull();
  });

  test("is nothing where it can be, or nothing is known of it", () => {
    expect(unavailableReason("codex", { providers: [AGENT], usable: ["codex"] })).toBeNull();
    expect(unavailableReason("mine", { providers: [AGENT], usable: [] })).toBeNull();
    expect(unavailableReason("codex", undefined)).toBeNull();
  });
});
