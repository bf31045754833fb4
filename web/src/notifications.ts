/** Notifications of the browser about what waits for the user. They are sent only after the user has asked for them. */
import { useSyncExternalStore } from "react";

const KEY = "shopfloor:notifications";
const listeners = new Set<() => void>();

/** `off`: the user has not asked for notifications. `blocked`: the browser refuses them. */
export type NotificationState = "on" | "off" | "blocked" | "unsupported";

function currentState(): NotificationState {
  // Browsers offer notifications on secure origins only.
  if (!("Notification" in window) || !isSecureContext) return "unsupported";
  if (Notification.permission === "denied") return "blocked";
  return Notification.permission === "granted" && localStorage.getItem(KEY) === "on" ? "on" : "off";
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export const useNotificationState = () => useSyncExternalStore(subscribe, currentState);

/** Switch notifications on or off. The browser asks the user the first time. */
export async function setNotifications(isOn: boolean): Promise<void> {
  localStorage.setItem(KEY, isOn ? "on" : "off");
  if (isOn && Notification.permission === "default") await Notification.requestPermission();
  for (const listener of listeners) listener();
}

/** Notify the user, unless the page has the focus or notifications are off. The same `tag` replaces a notification. */
export function notify(title: string, body: string, tag: string, onClick: () => void): void {
  if (currentState() !== "on" || document.hasFocus()) return;
  try {
    const notification = new Notification(title, { body, tag });
    notification.onclick = () => {
      window.focus();
      notification.close();
      onClick();
    };
  } catch {
    // Some mobile browsers have the interface but refuse to construct one.
  }
}
