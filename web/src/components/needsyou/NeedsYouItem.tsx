import { useQuery } from "@tanstack/react-query";
import { problemOf, runQuery, type WaitingItem } from "@/api";
import { RunLink } from "@/components/charts/RunLink";
import { Question } from "@/components/transcript/Question";
import { Button } from "@/components/ui/Button";
import { Icon, type IconName } from "@/components/ui/Icon";
import { Age } from "@/components/ui/Time";
import type { Zone } from "@/views/shortcutKeys";
import { type CallItem, callOf, isCallItem, kindText, knownCall, summaryOf } from "@/views/waiting";
import { RunActions } from "./RunActions";

const ICONS: Record<string, IconName> = {
  approval: "approval",
  client_tool: "tool",
  failure: "warn",
  definition_changed: "pause",
  interrupted: "pause",
};

export const KindIcon = ({ kind }: { kind: string }) => (
  <Icon
    name={ICONS[kind] ?? "waiting"}
    label={kindText(kind)}
    className={kind === "failure" ? "text-failed" : "text-waiting"}
  />
);

/** The first line of an item: its kind, the run that waits, and since when. */
export function ItemHead({ item }: { item: WaitingItem }) {
  return (
    <div className="flex h-5 items-center gap-2.5">
      <KindIcon kind={item.kind} />
      <RunLink runId={item.run_id} title={item.title} className="min-w-0 flex-1 truncate font-medium hover:underline">
        {item.title || item.worker}
      </RunLink>
      <span className="text-12 text-text-3 tabular-nums">
        <Age at={item.since} />
      </span>
    </div>
  );
}

/** What an item asks or why it failed, with its buttons. `keyZone`: where the keys 1 to 9 press them. */
export function ItemBody({ item, keyZone }: { item: WaitingItem; keyZone: Zone | undefined }) {
  return (
    <div className="pt-1 pl-[26px] text-12 text-text-2">
      {isCallItem(item) ? <CallBody item={item} keyZone={keyZone} /> : <RunActions item={item} keyZone={keyZone} />}
    </div>
  );
}

function CallBody({ item, keyZone }: { item: CallItem; keyZone: Zone | undefined }) {
  // The list has the text; the command or the difference to approve is in the details of the run.
  const { data, error, refetch } = useQuery({ ...runQuery(item.run_id), enabled: item.kind !== "question" });
  const known = knownCall(item, data?.awaits);
  // Nobody approves what is not on the screen.
  if (item.kind === "approval" && !known)
    return (
      <div className="flex min-h-24 flex-col gap-1.5">
        <p className="font-medium [overflow-wrap:anywhere]">{summaryOf(item)}</p>
        {error ? (
          <p role="alert" className="flex items-center gap-2 text-failed-text">
            <span className="min-w-0 flex-1">Could not load what to approve: {problemOf(error, 0).message}</span>
            <Button onClick={() => void refetch()}>Retry</Button>
          </p>
        ) : (
          <p className="text-text-3">Loading what to approve…</p>
        )}
      </div>
    );
  return <Question call={known ?? callOf(item)} keyZone={keyZone} isFieldFolded />;
}
