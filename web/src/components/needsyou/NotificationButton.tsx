import { Button } from "@/components/ui/Button";
import { Icon } from "@/components/ui/Icon";
import { type NotificationState, setNotifications, useNotificationState } from "@/notifications";

const TITLES: Record<NotificationState, string> = {
  on: "Notifications are on: this browser notifies you when a run waits for you. Switch them off.",
  off: "Notifications are off. Let this browser notify you when a run waits for you.",
  blocked: "This browser blocks notifications of this page. Allow them in the settings of the page.",
  unsupported: "",
};

/** Switch the notifications of the browser on or off. Nothing is asked before the user presses it. */
export function NotificationButton() {
  const state = useNotificationState();
  if (state === "unsupported") return null;
  return (
    <Button
      variant="ghost"
      disabled={state === "blocked"}
      aria-pressed={state === "on"}
      aria-label="Notifications"
      title={TITLES[state]}
      onClick={() => void setNotifications(state !== "on")}
      className="max-md:hidden"
    >
      <Icon name={state === "on" ? "bell" : "bellOff"} className={state === "on" ? "text-accent-text" : "text-icon"} />
    </Button>
  );
}
