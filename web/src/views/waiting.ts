/** What waits for a person, as the page shows it. */
import type { PendingCall, WaitingItem } from "@/api";
import { oneLine } from "./json";
import { formatShort } from "./time";

/** The identity of an item: a run may wait for several calls. */
export const keyOf = ({ run_id, call_id }: Pick<WaitingItem, "run_id" | "call_id">) => `${run_id} ${call_id ?? ""}`;

const KINDS: Record<string, string> = {
  question: "Question",
  approval: "Approval",
  client_tool: "Tool",
  failure: "Failed",
  definition_changed: "Held",
  interrupted: "Interrupted",
};
export const kindText = (kind: string) => KINDS[kind] ?? "Waiting";

/** Return the item on one line: the question, or what would be done. */
export const summaryOf = ({ kind, text }: WaitingItem) =>
  oneLine(kind === "approval" ? text.replace(/^approval of /, "Approve ") : text, 200);

/** What can be done with a run that waits without a call. */
export type RunAction = Exclude<WaitingItem["actions"][number], "answer">;
export const runActionsOf = ({ actions }: WaitingItem): RunAction[] => actions.filter((action) => action !== "answer");

/** An item with a call, which a person can answer. */
export type CallItem = WaitingItem & { call_id: string };
export const isCallItem = (item: WaitingItem): item is CallItem => item.call_id !== null;

/** Return the call of the run's details that an item stands for: it has the whole input. */
export function knownCall(item: CallItem, calls: readonly PendingCall[] = []): PendingCall | undefined {
  const found = calls.find((call) => keyOf(call) === keyOf(item));
  return found && { ...found, answered: false };
}

/** Return the call that an item stands for, as far as the item tells. */
export function callOf({ run_id, call_id, kind, text, options, until, worker }: CallItem): PendingCall {
  const input = kind === "client_tool" ? text : { question: text, options: options ?? [] };
  return { run_id, call_id, kind, name: worker, input, until, answered: false };
}

/** Return the key of the item after this one, or of the first. */
export function nextKey(items: readonly WaitingItem[], key: string | undefined): string | undefined {
  const next = items[items.findIndex((item) => keyOf(item) === key) + 1] ?? items[0];
  return next && keyOf(next);
}

/** Return what the tile says below its figure: how long the first item, which is the oldest, has waited. */
export const waitingText = ([first]: readonly WaitingItem[], now: number): string =>
  first ? `longest ${formatShort(Math.max(0, now - Date.parse(first.since)))}` : "nothing waits";
