import clsx from "clsx";
import type { Block } from "@/api";
import { Button } from "@/components/ui/Button";
import { Code } from "@/components/ui/Code";
import { Icon, type IconName } from "@/components/ui/Icon";
import { Markdown } from "@/components/ui/Markdown";
import { commandText, isKnownBlock, isOutput } from "@/views/events";
import { headline } from "@/views/headline";
import { asText, oneLine } from "@/views/json";
import type { Message as MessageEvent, MessageRow } from "@/views/rowTypes";
import { formatDuration } from "@/views/time";
import { TruncationNotice } from "./TruncationNotice";
import { Fold } from "./Fold";
import { useTranscriptContext, useFullEvent } from "./transcriptContext";
import { RowStatePart, useRowState } from "./rowState";
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
        <p className="pl-[30px] text-11 text-text-3 max-md:pl-2">
          {payload.role === "user" ? "Sent by the agent’s program" : "Written by the agent’s program"}
        </p>
      )}
      {blocks.map((block, n) => (
        <RowStatePart key={n} name={n}>
          <BlockView block={block} message={full.event} seq={row.seq} open={open} end={row.end} />
        </RowStatePart>
      ))}
      {payload.role === "assistant" && payload.stop_reason === INTERRUPTED && (
        <p className="pl-[30px] text-11 text-running-text max-md:pl-2">The message is incomplete</p>
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
  /** The end of the step, for a command. */
  end: MessageRow["end"];
}

function BlockView({ block, message, seq, open, end }: BlockProps) {
  const title = fidelityLabel(block.fidelity);
  if (!isKnownBlock(block)) return <UnknownBlock title={`Unknown block type: ${asText(block.type)}`} value={block} />;
  switch (block.type) {
    case "text":
      if (isOutput(block)) return <Text text={block.text} isError={block.stream === "stderr"} isWide />;
      return message.type === "message.user" ? (
        <Prompt text={block.text} title={title} />
      ) : (
        <div
          title={title}
          className="max-w-[calc(var(--prose-w)+30px)] py-1 pl-[30px] text-14/(--lh-prose) max-md:pl-2"
        >
          <Markdown text={block.text} />
        </div>
      );
    case "command":
      return <Prompt text={commandText(block.command, block.variables)} title={title} isCommand end={end} />;
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

interface PromptProps {
  text: string;
  title: string;
  isCommand?: boolean;
  end?: MessageRow["end"];
}

/** A prompt, or the line of a command with its exit code and duration. A long prompt is cut at first: most readers know it. */
function Prompt({ text, title, isCommand = false, end }: PromptProps) {
  const [isExpanded, setIsExpanded] = useRowState("expanded", false);
  const isLong = text.length > PROMPT_CHARS * 1.5;
  const shown = isLong && !isExpanded ? `${text.slice(0, PROMPT_CHARS)}…` : text;
  return (
    <div title={title} className="my-0.5 flex gap-2.5 rounded-2 bg-bg-sunken px-3 py-2">
      <Icon name={isCommand ? "term" : "user"} className="mt-0.5 text-icon" />
      <div className="min-w-0 flex-1">
        <div
          className={clsx(
            "[overflow-wrap:anywhere] whitespace-pre-wrap",
            isCommand ? "font-mono text-12/5" : "max-w-(--prose-w) text-14/(--lh-prose)",
          )}
        >
          {isCommand ? <Code text={shown} language="shell" /> : shown}
        </div>
        {isLong && (
          <Button
            variant="ghost"
            className="-ml-2"
            aria-expanded={isExpanded}
            onClick={() => setIsExpanded((before) => !before)}
          >
            {isExpanded ? "Show less" : "Show more"}
          </Button>
        )}
      </div>
      {end?.payload.duration_ms != null && (
        <span className="text-12/5 text-text-3 tabular-nums">{formatDuration(end.payload.duration_ms)}</span>
      )}
    </div>
  );
}

function Thinking({ text, seq, open, title }: { text: string; seq: number; open: boolean; title: string }) {
  const { onToggle } = useTranscriptContext();
  const head = (
    <>
      <Icon name="think" className="text-icon" />
      <span className="shrink-0 text-text-2 italic">Thinking</span>
      {!open && <span className="min-w-0 truncate text-text-3 italic">{oneLine(text)}</span>}
    </>
  );
  return (
    <Fold open={open} onToggle={() => onToggle(seq, !open)} title={title} head={head}>
      <div className="ml-[13px] max-w-(--prose-w) border-l-2 border-border py-0.5 pl-3 text-text-2">
        <Markdown text={text} />
      </div>
    </Fold>
  );
}

function SystemPrompt({ text, seq, open }: { text: string; seq: number; open: boolean }) {
  const { onToggle } = useTranscriptContext();
  const head = (
    <>
      <Icon name="note" className="text-icon" />
      <span className="shrink-0 text-text-2">System prompt</span>
      {!open && <span className="min-w-0 truncate text-text-3">{oneLine(text)}</span>}
    </>
  );
  return (
    <Fold open={open} onToggle={() => onToggle(seq, !open)} head={head}>
      <div className="ml-[13px] border-l-2 border-border pl-3">
        <Text text={text} />
      </div>
    </Fold>
  );
}

/** A chunk of a stream as it arrived. */
function Stream({ text, unparsed, title }: { text: string; unparsed: boolean; title: string }) {
  return (
    <div title={title} className="flex items-start gap-2 pl-[30px] max-md:pl-2">
      {unparsed && (
        <span className="mt-0.5 rounded bg-running-bg px-1.5 text-11 font-medium text-running-text">unparsed</span>
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
    <div className="ml-[30px] rounded-2 border border-dashed border-border px-2 py-1 max-md:ml-2">
      <p className="text-12 text-text-2">{title}</p>
      <Text text={asText(value)} />
    </div>
  );
}

const NOTES: Record<string, { icon: IconName; className: string }> = {
  ready: { icon: "note", className: "text-text-3" },
  left: { icon: "note", className: "text-text-3" },
  error: { icon: "failed", className: "text-failed-text" },
};
const OTHER_NOTE = { icon: "warn" as const, className: "text-running-text" };

/** A note of the agent's program. */
function NoteLine({ kind, text, code }: { kind: string; text: string; code: string | null }) {
  const { icon, className } = NOTES[kind] ?? OTHER_NOTE;
  return (
    <p className={clsx("flex items-start gap-1.5 py-1 pl-[26px] text-12 max-md:pl-2", className)}>
      <Icon name={icon} className="size-4" />
      <span className="min-w-0 [overflow-wrap:anywhere] whitespace-pre-wrap">
        {text}
        {code && <span className="ml-1.5 font-mono">{code}</span>}
      </span>
    </p>
  );
}
