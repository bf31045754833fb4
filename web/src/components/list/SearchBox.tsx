import { useEffect, useEffectEvent, useRef, useState } from "react";
import { Icon } from "@/components/ui/Icon";
import { isEnter } from "@/components/ui/isEnter";
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
  const clear = () => {
    setText("");
    submittedRef.current = "";
    changeAddress({ q: undefined });
    fieldRef.current?.focus();
  };
  useEffect(() => {
    // The query changed elsewhere: by a link, or by going back.
    if (query === submittedRef.current) return;
    submittedRef.current = query;
    hasHistoryEntryRef.current = false;
    setText(query);
  }, [query]);
  const submitTyped = useEffectEvent(submit);
  useEffect(() => {
    const timer = setTimeout(() => submitTyped(), TYPING_PAUSE_MS);
    return () => clearTimeout(timer);
    // Only what is typed restarts the pause: the list renders many times a second while runs change.
  }, [text]);
  useShortcuts("page", {
    "/": () => fieldRef.current?.select(),
  });
  return (
    <div className="relative min-w-0 flex-1">
      <Icon name="search" className="pointer-events-none absolute top-1/2 left-2 size-3.5 -translate-y-1/2 text-icon" />
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
          } else if (isEnter(event) || (event.key === "ArrowDown" && !event.nativeEvent.isComposing)) {
            event.preventDefault();
            submit();
            onEnter();
          }
        }}
        className="h-(--control-h) w-full rounded-2 border border-border-strong bg-bg-pop pr-7 pl-7 text-12 placeholder:text-text-3 coarse:text-16"
      />
      {text === "" ? (
        <kbd aria-hidden className="pointer-events-none absolute top-1/2 right-1.5 -translate-y-1/2">
          /
        </kbd>
      ) : (
        <button
          type="button"
          aria-label="Clear search"
          title="Clear search"
          onClick={clear}
          className="absolute top-1/2 right-1 flex size-5 -translate-y-1/2 items-center justify-center rounded-1 text-text-3 hover:bg-bg-hover hover:text-text coarse:size-8"
        >
          <span aria-hidden>×</span>
        </button>
      )}
    </div>
  );
}
