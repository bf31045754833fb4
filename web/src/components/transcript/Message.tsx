import clsx from "clsx";
import { useState } from "react";
import type { Block } from "@/api";
import { Button } from "@/components/ui/Button";
import { Markdown } from "@/components/ui/Markdown";
import { commandText, isKnownBlock, isOutput } from "@/views/events";
import { headline } from "@/views/headline";
import { asText, oneLine } from "@/views/json";
import type { Message as MessageEvent, MessageRow } from "@/views/rowTypes";
import { TruncationNotice } from "./TruncationNotice";
import { Fold } from "./Fold";
import { useTranscriptContext, useFullEvent } from "./transcriptContext";
import { Text } from "./Text";
import { noteText, fidelityLabel } from "./labels";

/** The stop reason of a message that was interrupted. */
const INTERRUPTED = "interrupted";

/** A message to the agent, from the agent, or from its program. */
export function Message({ row, open }: { row: MessageRow; open: boolean }) {
  const full = useFullEvent(row.message, false);
  // The same blocks of the full message as of the truncated one.
  const blocks = row.blocks.map(
    (block) => full.event.payload.blocks[row.message.payload.blocks.indexOf(block)] ?? block,
  );
  const { payload } = full.event;
  const note = payload.role === "assistant" ? payload.note : null;
  return (
    <div className="flex flex-col gap-1">
      {note && <NoteLine kind={note.kind} text={noteText(note)} code={note.code ?? null} />}
      {payload.role === "user" && payload.system_prompt && (
        <SystemPrompt text={payload.system_prompt} seq={row.seq} open={open} />
      )}
      {payload.synthetic && (
        <p className="text-[11px] text-ink-faint">
          {payload.role === "user" ? "Sent by the agent’s program" : "Written by the agent’s program"}
        </p>
      )}
      {blocks.map((block, n) => (
        <BlockView key={n} block={block} message={full.event} seq={row.seq} open={open} />
      ))}
      {payload.role === "assistant" && payload.stop_reason === INTERRUPTED && (
        <p className="text-[11px] text-running">The message is incomplete</p>
      )}
      <TruncationNotice full={full} />
    </div>
  );
}

interface BlockProps {
  block: Block;
  message: MessageEvent;
  seq: number;
  open: boolean;
}

function BlockView({ block, message, seq, open }: BlockProps) {
  const title = fidelityLabel(block.fidelity);
  if (!isKnownBlock(block)) return <UnknownBlock title={`Unknown block type: ${asText(block.type)}`} value={block} />;
  switch (block.type) {
    case "text":
      if (isOutput(block)) return <Text text={block.text} isError={block.stream === "stderr"} isWide />;
      return message.type === "message.user" ? (
        <Prompt text={block.text} title={title} />
      ) : (
        <div title={title} className="max-w-[100ch]">
          <Markdown text={block.text} />
        </div>
      );
    case "command":
      return <Prompt text={commandText(block.command, block.variables)} title={title} isCommand />;
    case "thinking":
      return <Thinking text={block.thinking} seq={seq} open={open} title={title} />;
    case "stream":
      return <Stream text={block.chunk} unparsed={block.unparsed ?? false} title={title} />;
    case "tool_use":
      return (
        <UnknownBlock
          title={`Requested ${block.tool_name} ${headline(block.tool_input)}, but did not call it`}
          value={block.tool_input}
        />
      );
    case "tool_result":
      return <UnknownBlock title="A tool’s result" value={block.tool_content} />;
  }
}

const PROMPT_CHARS = 1_200;

/** A prompt. A long one is cut at first: most readers know it. */
function Prompt({ text, title, isCommand = false }: { text: string; title: string; isCommand?: boolean }) {
  const [isExpanded, setIsExpanded] = useState(false);
  const isLong = text.length > PROMPT_CHARS * 1.5;
  return (
    <div title={title} className="rounded border border-line bg-app-side px-2.5 py-1.5">
      <div
        className={clsx(
          "[overflow-wrap:anywhere] whitespace-pre-wrap",
          isCommand && "font-mono text-xs leading-[18px]",
        )}
      >
        {isCommand && (
          <span aria-hidden className="text-ink-faint select-none">
            ${" "}
          </span>
        )}
        {isLong && !isExpanded ? `${text.slice(0, PROMPT_CHARS)}…` : text}
      </div>
      {isLong && (
        <Button variant="ghost" className="-ml-2" aria-expanded={isExpanded} onClick={() => setIsExpanded(!isExpanded)}>
          {isExpanded ? "Show less" : "Show more"}
        </Button>
      )}
    </div>
  );
}

function Thinking({ text, seq, open, title }: { text: string; seq: number; open: boolean; title: string }) {
  const { onToggle } = useTranscriptContext();
  const head = (
    <>
      <span className="shrink-0 text-xs text-ink-dull italic">Thinking</span>
      {!open && <span className="min-w-0 truncate text-xs text-ink-faint italic">{oneLine(text)}</span>}
    </>
  );
  return (
    <Fold open={open} onToggle={() => onToggle(seq, !open)} title={title} head={head}>
      <div className="ml-1.5 border-l-2 border-line pl-3 text-ink-dull">
        <Markdown text={text} />
      </div>
    </Fold>
  );
}

function SystemPrompt({ text, seq, open }: { text: string; seq: number; open: boolean }) {
  const { onToggle } = useTranscriptContext();
  const head = (
    <>
      <span className="shrink-0 text-xs text-ink-dull">System prompt</span>
      {!open && <span className="min-w-0 truncate text-xs text-ink-faint">{oneLine(text)}</span>}
    </>
  );
  return (
    <Fold open={open} onToggle={() => onToggle(seq, !open)} head={head}>
      <div className="ml-1.5 border-l-2 border-line pl-3">
        <Text text={text} />
      </div>
    </Fold>
  );
}

/** A chunk of a stream as it arrived. */
function Stream({ text, unparsed, title }: { text: string; unparsed: boolean; title: string }) {
  return (
    <div title={title} className="flex items-start gap-2">
      {unparsed && (
        <span className="mt-0.5 rounded bg-running-back px-1.5 text-[11px] font-medium text-running">unparsed</span>
      )}
      <div className="min-w-0 flex-1">
        <Text text={text} />
      </div>
    </div>
  );
}

/** A block of an unknown type, shown as JSON. */
function UnknownBlock({ title, value }: { title: string; value: unknown }) {
  return (
    <div className="rounded border border-dashed border-line px-2 py-1">
      <p className="text-xs text-ink-dull">{title}</p>
      <Text text={asText(value)} />
    </div>
  );
}

const NOTES: Record<string, { sign: string; className: string }> = {
  ready: { sign: "○", className: "text-ink-faint" },
  left: { sign: "○", className: "text-ink-faint" },
  error: { sign: "✗", className: "text-failed" },
};
const OTHER_NOTE = { sign: "!", className: "text-running" };

/** A note of the agent's program. */
function NoteLine({ kind, text, code }: { kind: string; text: string; code: string | null }) {
  const { sign, className } = NOTES[kind] ?? OTHER_NOTE;
  return (
    <p className={clsx("flex gap-1.5 text-xs", className)}>
      <span aria-hidden className="w-3 shrink-0 text-center">
        {sign}
      </span>
      <span className="min-w-0 [overflow-wrap:anywhere] whitespace-pre-wrap">
        {text}
        {code && <span className="ml-1.5 font-mono">{code}</span>}
      </span>
    </p>
  );
}
