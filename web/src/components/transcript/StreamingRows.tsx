import { useDeferredValue } from "react";
import type { RunLog, StreamingBlock } from "@/api";
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
    <div data-streaming className="flex flex-col border-l-2 border-transparent px-2.5 sm:px-3">
      {blocks.map((block) => (
        <div key={block.key} className="py-1">
          <StreamingBlockView blocks={block} />
        </div>
      ))}
    </div>
  );
}

function StreamingBlockView({ blocks: { kind, text, toolName } }: { blocks: StreamingBlock }) {
  if (kind === "thinking") {
    return (
      <p className="flex items-baseline gap-1.5 py-0.5">
        <span aria-hidden className="w-3 shrink-0 text-center text-[10px] text-ink-faint">
          ▸
        </span>
        <span className="shrink-0 text-xs text-ink-dull italic">Thinking</span>
        <span className="min-w-0 truncate text-xs text-ink-faint italic">{oneLine(text.slice(-300))}</span>
        <Caret />
      </p>
    );
  }
  if (kind === "tool_input") {
    return (
      <p className="flex items-baseline gap-1.5 rounded border border-line bg-app-raised px-2 py-1 text-xs">
        <span aria-hidden className="w-3 shrink-0" />
        <span aria-hidden className="w-3 shrink-0 animate-pulse text-center text-running">
          ●
        </span>
        <span className="shrink-0 font-semibold">{toolName ?? "tool"}</span>
        <span className="min-w-0 truncate font-mono text-ink-dull">{oneLine(text.slice(-200))}</span>
        <Caret />
      </p>
    );
  }
  return (
    <div className="typing max-w-[100ch]">
      {splitBlocks(text).map((piece, n) => (
        <Markdown key={n} text={piece} />
      ))}
    </div>
  );
}

const Caret = () => <span aria-hidden className="caret" />;
