import { useEffect, useRef, useState } from "react";
import { useShortcuts } from "@/shortcuts";
import { useChangeAddress, useAddress } from "@/useAddress";

const TYPING_PAUSE_MS = 200;
/** The longest query that the server accepts. */
const MAX_CHARS = 1_000;

/** The search over all runs. The query goes to the address once the user pauses typing. */
export function SearchBox({ onEnter }: { onEnter: () => void }) {
  const query = useAddress().q ?? "";
  const changeAddress = useChangeAddress();
  const fieldRef = useRef<HTMLInputElement>(null);
  const [text, setText] = useState(query);
  const submittedRef = useRef(query);
  /** Whether the typed query has a history entry of its own: the first change adds one, later changes replace it. */
  const hasHistoryEntryRef = useRef(false);
  const submit = () => {
    if (text.trim() === submittedRef.current) return;
    submittedRef.current = text.trim();
    changeAddress({ q: submittedRef.current || undefined }, hasHistoryEntryRef.current);
    hasHistoryEntryRef.current = true;
  };
  useEffect(() => {
    // The query changed elsewhere: by a link, or by going back.
    if (query === submittedRef.current) return;
    submittedRef.current = query;
    hasHistoryEntryRef.current = false;
    setText(query);
  }, [query]);
  useEffect(() => {
    const timer = setTimeout(submit, TYPING_PAUSE_MS);
    return () => clearTimeout(timer);
  });
  useShortcuts("page", {
    "/": () => fieldRef.current?.select(),
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
        ref={fieldRef}
        type="search"
        aria-label="Search runs"
        aria-keyshortcuts="/"
        placeholder="Search runs"
        maxLength={MAX_CHARS}
        value={text}
        onFocus={() => void (hasHistoryEntryRef.current = false)}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            // The browser would empty the field; keep the query, since the user only leaves the field.
            event.preventDefault();
            submit();
            fieldRef.current?.blur();
          } else if (event.key === "Enter" || event.key === "ArrowDown") {
            event.preventDefault();
            submit();
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
