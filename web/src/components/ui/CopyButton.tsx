import { useEffect, useState } from "react";
import { Button } from "./Button";

const SHOWN_MS = 1_500;

/** A button that copies text and confirms it. A function as `text` is called only when the button is pressed. */
export function Copy({
  text,
  label,
  title,
}: {
  text: string | (() => string | Promise<string>);
  label: string;
  title?: string;
}) {
  const [said, setSaid] = useState<string | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    setSaid((await toClipboard(typeof text === "string" ? text : await text())) ? "Copied" : "Cannot copy here");
  };
  return (
    <Button look="bare" title={title} onClick={() => void copy()}>
      <span aria-live="polite">{said ?? label}</span>
    </Button>
  );
}

/** Browsers offer the clipboard API on secure origins only; elsewhere use the deprecated command. */
export async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
