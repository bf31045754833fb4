import { useEffect, useRef, useState } from "react";
import { useKeys } from "@/shortcuts";
import { useGo, usePlace } from "@/address";

const REST_MS = 200;
/** The longest query that the server accepts. */
const MOST_CHARS = 1_000;

/** The search over all runs. The query goes to the address once the user pauses typing. */
export function SearchBox({ onEnter }: { onEnter: () => void }) {
  const said = usePlace().q ?? "";
  const go = useGo();
  const field = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(said);
  const told = useRef(said);
  /** Whether the typed query has a history entry of its own: the first change adds one, later changes replace it. */
  const hasStep = useRef(false);
  const tell = () => {
    if (text.trim() === told.current) return;
    told.current = text.trim();
    go({ q: told.current || undefined }, hasStep.current);
    hasStep.current = true;
  };
  useEffect(() => {
    // The query changed elsewhere: by a link, or by going back.
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
            // The browser would empty the field; keep the query, since the user only leaves the field.
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
