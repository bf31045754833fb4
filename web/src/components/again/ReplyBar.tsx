import { useState } from "react";
import type { RunDetail } from "@/api";
import { Button } from "@/components/ui/Button";
import { isEnter } from "@/components/ui/isEnter";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { isActive } from "@/views/detail";
import { useReply } from "./useAgain";

/** The footer of a session of an agent: a field for a reply when it has ended. As high before, so that nothing moves. */
export function ReplyBar({ run }: { run: RunDetail }) {
  const [text, setText] = useState("");
  const { mutate, isPending, error } = useReply(run);
  const send = () => {
    if (!isPending && text.trim()) mutate(text.trim());
  };
  if (isActive(run.status))
    return (
      <p className="flex h-11 shrink-0 items-center border-t border-border bg-bg-side px-4 text-12 text-text-3">
        You can reply when the agent has ended.
      </p>
    );
  return (
    <form
      data-reply
      className="min-h-11 shrink-0 border-t border-border bg-bg-side"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {error && <ErrorMessage error={error} />}
      <div className="flex items-end gap-2 px-3 py-[6px]">
        <textarea
          aria-label="Reply"
          placeholder="Reply: what should the agent do next?"
          rows={1}
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (!isEnter(event) || event.shiftKey) return;
            event.preventDefault();
            send();
          }}
          className="field-sizing-content max-h-40 min-h-[31px] min-w-0 flex-1 resize-none rounded-2 border border-border-strong bg-bg px-2 py-1.5 text-13 leading-[17px] placeholder:text-text-3 coarse:text-16"
        />
        <Button
          type="submit"
          disabled={isPending || !text.trim()}
          title="Enter sends, Shift+Enter adds a new line"
          className="h-[31px]"
        >
          Send
        </Button>
      </div>
    </form>
  );
}
