import { useQuery } from "@tanstack/react-query";
import { runQuery, type WaitingItem } from "@/api";
import { RunLink } from "@/components/charts/RunLink";
import { Question } from "@/components/transcript/Question";
import { Icon, type IconName } from "@/components/ui/Icon";
import { Age } from "@/components/ui/Time";
import { type CallItem, callOf, isCallItem, kindText } from "@/views/waiting";
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

/** What an item asks or why it failed, with its buttons. `isMarked`: the keys 1 to 9 press them. */
export function ItemBody({ item, isMarked }: { item: WaitingItem; isMarked: boolean }) {
  return (
    <div className="pt-1 pl-[26px] text-12 text-text-2">
      {isCallItem(item) ? <CallBody item={item} isMarked={isMarked} /> : <RunActions item={item} isMarked={isMarked} />}
    </div>
  );
}

function CallBody({ item, isMarked }: { item: CallItem; isMarked: boolean }) {
  // The list has the text; the command or the difference to approve is in the details of the run.
  const { data } = useQuery({ ...runQuery(item.run_id), enabled: item.kind !== "question" });
  return <Question call={callOf(item, data?.awaits)} keyZone={isMarked ? "page" : undefined} isFieldFolded />;
}
