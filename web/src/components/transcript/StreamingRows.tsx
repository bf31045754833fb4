import { useDeferredValue } from "react";
import type { RunLog, StreamingBlock } from "@/api";
import { Icon } from "@/components/ui/Icon";
import { Markdown } from "@/components/ui/Markdown";
import { oneLine } from "@/views/json";
import { splitBlocks } from "@/views/markdown";

/** Messages that are being generated, at the place and in the form that they will have in the log. */
export function StreamingRows({ log }: { log: RunLog }) {
  // Rendering may lag behind the stream, but a block that the log has must disappear at once, or it would show twice.
  const deferred = useDeferredValue(log.streaming);
  const blocks = log.streaming.map((block) => deferred.find((known) => known.key === block.key) ?? block);
  if (blocks.length === 0) return null;
  return (
    <div data-streaming className="flex flex-col border-l-2 border-transparent pr-3 pl-2.5 max-md:px-1.5">
      {blocks.map((block) => (
        <div key={block.key}>
          <StreamingBlockView blocks={block} />
        </div>
      ))}
    </div>
  );
}

function StreamingBlockView({ blocks: { kind, text, toolName } }: { blocks: StreamingBlock }) {
  if (kind === "thinking") {
    return (
      <p className="flex min-h-(--call-h) items-center gap-1.5 px-2">
        <Icon name="right" className="size-3 text-icon" />
        <Icon name="think" className="text-icon" />
        <span className="shrink-0 text-text-2 italic">Thinking</span>
        <span className="min-w-0 truncate text-text-3 italic">{oneLine(text.slice(-300))}</span>
        <Caret />
      </p>
    );
  }
  if (kind === "tool_input") {
    return (
      <p className="flex min-h-(--call-h) items-center gap-1.5 px-2">
        <Icon name="right" className="size-3 text-icon" />
        <Icon name="running" className="spin text-running" />
        <span className="shrink-0 font-medium">{toolName ?? "tool"}</span>
        <span className="min-w-0 truncate font-mono text-[11.5px] text-text-2">{oneLine(text.slice(-200))}</span>
        <Caret />
      </p>
    );
  }
  return (
    <div className="typing max-w-[calc(var(--prose-w)+30px)] py-1 pl-[30px] text-14/(--lh-prose) max-md:pl-2">
      {splitBlocks(text).map((piece, n) => (
        <Markdown key={n} text={piece} />
      ))}
    </div>
  );
}

const Caret = () => <span aria-hidden className="caret" />;
