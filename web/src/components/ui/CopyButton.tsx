import { useEffect, useState } from "react";
import { Button } from "./Button";
import { Icon, type IconName } from "./Icon";

const MESSAGE_MS = 1_500;

/** A button that copies text and confirms it. A function as `text` is called only when the button is pressed. */
export function CopyButton({
  text,
  label,
  title,
  icon,
}: {
  text: string | (() => string | Promise<string>);
  label: string;
  title?: string;
  /** Shown instead of the label. */
  icon?: IconName;
}) {
  const [message, setMessage] = useState<string | null>(null);
  useEffect(() => {
    if (message === null) return;
    const timer = setTimeout(() => setMessage(null), MESSAGE_MS);
    return () => clearTimeout(timer);
  }, [message]);
  const copy = async () => {
    const isCopied = await copied(typeof text === "string" ? () => text : text);
    setMessage(isCopied ? "Copied" : "Could not copy");
  };
  if (icon !== undefined)
    return (
      <Button
        variant="ghost"
        title={title}
        aria-label={message ?? label}
        onClick={() => void copy()}
        className="px-1.5"
      >
        <Icon name={message === null ? icon : "done"} className={message === null ? "text-icon" : "text-done"} />
        <span aria-live="polite" className="sr-only">
          {message}
        </span>
      </Button>
    );
  return (
    <Button variant="ghost" title={title} onClick={() => void copy()}>
      <span aria-live="polite">{message ?? label}</span>
    </Button>
  );
}

/** Copy a text that may have to be loaded first. Return false if that failed. */
async function copied(text: () => string | Promise<string>): Promise<boolean> {
  try {
    return await copyToClipboard(await text());
  } catch {
    return false;
  }
}

/** Browsers offer the clipboard API on secure origins only; elsewhere use the deprecated command. */
export async function copyToClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const focused = document.activeElement;
    const field = document.createElement("textarea");
    field.value = text;
    // Outside of an open dialog nothing can have the focus.
    ([...document.querySelectorAll("dialog[open]")].at(-1) ?? document.body).append(field);
    field.select();
    const wasCopied = document.execCommand("copy");
    field.remove();
    if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
    return wasCopied;
  }
}
