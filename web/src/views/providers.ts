/** What a provider lacks before it can be used, as in `shopfloor providers`. */
import type { Provider, ProviderList } from "@/api";

/** Return why the provider cannot be used; null if it can, or while its state is unknown. */
export function unavailableReason(name: string, providers: ProviderList | undefined): string | null {
  const provider = providers?.providers.find((candidate) => candidate.name === name);
  return provider && !providers?.usable.includes(name) ? missingText(provider) : null;
}

/** Return the state of a provider that cannot be used, in a word or two, for lists. */
export function unavailableLabel(name: string, providers: ProviderList | undefined): string | null {
  if (unavailableReason(name, providers) === null) return null;
  return providers?.providers.some((one) => one.name === name && one.status === "disabled")
    ? "disabled"
    : "not available";
}

function missingText(provider: Provider): string {
  if (provider.status !== "disabled") return problemText(provider);
  const { reason, disabled_by, error } = provider;
  return `Disabled${reason === "maintenance" ? " for maintenance" : ""} by ${disabled_by}${error ? `: ${error}` : ""}`;
}

function problemText({ kind, program, path, problem, login, install }: Provider): string {
  if (kind === "agent" && path == null) return `Not installed on the server's machine. To install it: ${install}`;
  if (problem != null) return `Does not work on the server's machine: ${problem}`;
  if (login != null) return "Not usable on the server's machine yet.";
  return `Not logged in: ${kind === "api" ? install : `start \`${program}\` once on the server's machine and log in, or set its key`}`;
}
