import { useMutation, useQueryClient } from "@tanstack/react-query";
import clsx from "clsx";
import { useRef } from "react";
import { cancelRun, dismissRun, rerunRun, type WaitingItem } from "@/api";
import { Message } from "@/components/ui/Message";
import { Button, type ButtonVariant } from "@/components/ui/Button";
import { useCanAct } from "@/useCanAct";
import { type RunAction, runActionsOf } from "@/views/waiting";
import type { Zone } from "@/views/shortcutKeys";
import { NumberKey } from "./NumberKey";
import { useNumberKeys } from "./useNumberKeys";

interface ActionButton {
  readonly label: string;
  readonly variant: ButtonVariant;
  /** What is shown until the list without the item arrives. */
  readonly done: string;
  readonly send: (runId: string) => Promise<unknown>;
}

const BUTTONS: Record<RunAction, ActionButton> = {
  rerun: { label: "Rerun", variant: "plain", done: "Started again.", send: (id) => rerunRun(id, null) },
  cancel: { label: "Cancel", variant: "danger", done: "Cancelled.", send: cancelRun },
  dismiss: { label: "Dismiss", variant: "ghost", done: "Dismissed.", send: dismissRun },
};

/** A run is not cancelled by a slip of a finger. */
const hasKey = (action: RunAction) => action !== "cancel";

interface Props {
  item: WaitingItem;
  /** Where the keys 1 to 9 press the buttons; without it they do not. */
  keyZone: Zone | undefined;
}

/** Why a run waits for a person, and what can be done about it. */
export function RunActions({ item, keyZone }: Props) {
  const queries = useQueryClient();
  const canAct = useCanAct();
  const { mutate, isPending, data, error } = useMutation({
    mutationFn: async (action: RunAction) => {
      await BUTTONS[action].send(item.run_id);
      return action;
    },
    onSuccess: () => queries.invalidateQueries({ queryKey: ["waiting"] }),
  });
  const boxRef = useRef<HTMLDivElement>(null);
  const actions = canAct && data === undefined ? runActionsOf(item) : [];
  const hasActiveKeys = useNumberKeys(isPending ? undefined : keyZone, actions.length, boxRef, (n) => {
    const action = actions[n];
    if (action && hasKey(action)) mutate(action);
  });
  return (
    <div ref={boxRef} className="flex flex-col gap-1.5">
      <p
        className={clsx("[overflow-wrap:anywhere] whitespace-pre-wrap", item.kind === "failure" && "text-failed-text")}
      >
        <Message text={item.text} />
      </p>
      {item.hint && (
        <p className="[overflow-wrap:anywhere] text-text-2">
          <Message text={item.hint} />
        </p>
      )}
      {actions.length > 0 && (
        <div className="flex flex-wrap gap-1.5">
          {actions.map((action, n) => (
            <Button
              key={action}
              disabled={isPending}
              onClick={() => mutate(action)}
              variant={keyZone && n === 0 && hasKey(action) ? "primary" : BUTTONS[action].variant}
              {...(hasActiveKeys && hasKey(action) && { "aria-keyshortcuts": String(n + 1) })}
              className={clsx(action === "dismiss" && "ml-auto")}
            >
              {BUTTONS[action].label}
              {keyZone && hasKey(action) && <NumberKey index={n} isShown={hasActiveKeys} />}
            </Button>
          ))}
        </div>
      )}
      {data !== undefined && (
        <p role="status" className="text-text-2">
          {BUTTONS[data].done}
        </p>
      )}
      {error && (
        <p role="alert" className="text-failed-text">
          {error.message}
        </p>
      )}
    </div>
  );
}
