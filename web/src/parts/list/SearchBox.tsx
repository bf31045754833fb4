import { useEffect, useRef, useState } from "react";
import { useKeys } from "@/keys";
import { useGo, usePlace } from "@/place";

const REST_MS = 200;
/** The longest that the server takes. */
const MOST_CHARS = 1_000;

/** The search over all runs: it is in the address as soon as somebody rests from typing. */
export function SearchBox({ onEnter }: { onEnter: () => void }) {
  const said = usePlace().q ?? "";
  const go = useGo();
  const field = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(said);
  const told = useRef(said);
  /** Whether what is typed has its own step to go back from: the first of it makes one, the rest changes it. */
  const hasStep = useRef(false);
  const tell = () => {
    if (text.trim() === told.current) return;
    told.current = text.trim();
    go({ q: told.current || undefined }, hasStep.current);
    hasStep.current = true;
  };
  useEffect(() => {
    // It came from elsewhere: from a link, or from going back.
    if (said === told.current) return;
    told.current = said;
    hasStep.current = false;
    setText(said);
  }, [said]);
  useEffect(() => {
    const timer = setTimeout(tell, REST_MS);
    return () => clearTimeout(timer);
  });
  useKeys("page", {
    "/": () => field.current?.select(),
  });
  return (
    <div className="relative">
      <svg
        aria-hidden
        viewBox="0 0 16 16"
        className="pointer-events-none absolute top-1/2 left-2 size-3.5 -translate-y-1/2 fill-none stroke-ink-faint stroke-[1.5]"
      >
        <circle cx="7" cy="7" r="4.5" />
        <path d="m10.5 10.5 4 4" />
      </svg>
      <input
        ref={field}
        type="search"
        aria-label="Search runs"
        aria-keyshortcuts="/"
        placeholder="Search runs"
        maxLength={MOST_CHARS}
        value={text}
        onFocus={() => void (hasStep.current = false)}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            // The browser would empty the field; whoever leaves it wants to keep what was found.
            event.preventDefault();
            tell();
            field.current?.blur();
          } else if (event.key === "Enter" || event.key === "ArrowDown") {
            event.preventDefault();
            tell();
            onEnter();
          }
        }}
        className="w-full rounded border border-line bg-app-raised py-1 pr-2 pl-7 text-sm text-ink placeholder:text-ink-faint"
      />
      {text === "" && (
        <kbd
          aria-hidden
          className="pointer-events-none absolute top-1/2 right-2 -translate-y-1/2 rounded border border-line px-1 font-mono text-[10px] text-ink-faint"
        >
          /
        </kbd>
      )}
    </div>
  );
}
