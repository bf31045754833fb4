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
    setMessage((await copyToClipboard(typeof text === "string" ? text : await text())) ? "Copied" : "Could not copy");
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

/** Browsers offer the clipboard API on secure origins only; elsewhere use the deprecated command. */
export async function copyToClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const wasCopied = document.execCommand("copy");
    field.remove();
    return wasCopied;
  }
}
