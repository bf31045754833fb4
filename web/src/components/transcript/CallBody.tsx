import type { EventOf } from "@/api";
import { CopyButton } from "@/components/ui/CopyButton";
import { formatBytes } from "@/views/amounts";
import { changesOf } from "@/views/diff";
import { asText, isRecord, isText } from "@/views/json";
import { outputsOf, type OutputPart } from "@/views/outputs";
import { FileDiffs } from "./FileDiffs";
import { TruncationNotice } from "./TruncationNotice";
import { useTranscriptContext, useFullEvent } from "./transcriptContext";
import { Text } from "./Text";

/** How many lines of a command's output are shown at first. */
const LAST_LINES = 12;

/** The input and the result of a call. */
export function CallBody({ call, result }: { call: EventOf<"tool.call">; result: EventOf<"tool.result"> | null }) {
  const fullCall = useFullEvent(call, true);
  const input = fullCall.event.payload.input;
  const changes = changesOf(input, null);
  const command = commandIn(input);
  return (
    <div className="flex flex-col gap-2 border-t border-line p-2">
      {/* An edit is shown as a diff below, not as its input. */}
      {changes.length === 0 && !isEmpty(input) && (
        <Section label={command ? "Command" : "Input"} copy={() => asText(command?.line ?? input)}>
          <Text text={command?.line ?? asText(input)} />
          {command && <OtherArguments values={command.rest} />}
        </Section>
      )}
      <TruncationNotice full={fullCall} />
      {result ? <ResultBody result={result} input={input} /> : <FileDiffs files={changes} />}
    </div>
  );
}

export function ResultBody({ result, input }: { result: EventOf<"tool.result">; input: unknown }) {
  const { log } = useTranscriptContext();
  const fullResult = useFullEvent(result, true);
  const payload = fullResult.event.payload;
  const changes = changesOf(input, payload.files);
  const parts = outputsOf(payload);
  const isCommand = payload.exit_code != null || commandIn(input) !== null;
  const loadRaw = async () => {
    const full = result.cut === undefined ? result : await log.fullEvent(result.seq);
    const fullPayload = full.type === "tool.result" ? full.payload : payload;
    return fullPayload.output == null && fullPayload.error != null ? fullPayload.error : asText(fullPayload.output);
  };
  return (
    <>
      <FileDiffs files={changes} />
      {!changes.length &&
        payload.files?.map((file) => (
          <p key={file.path} className="font-mono text-xs text-ink-dull">{`${file.action} ${file.path}`}</p>
        ))}
      {parts.length > 0 ? (
        <Section label={payload.error != null ? "Error" : "Result"} copy={loadRaw}>
          {parts.map((part, n) => (
            <OutputPartView
              key={n}
              part={part}
              lastLines={isCommand && fullResult.truncatedBytes === null ? LAST_LINES : undefined}
            />
          ))}
        </Section>
      ) : (
        changes.length === 0 && <p className="text-xs text-ink-faint">No output.</p>
      )}
      <TruncationNotice full={fullResult} />
    </>
  );
}

function Section({
  label,
  copy,
  children,
}: {
  label: string;
  copy: () => string | Promise<string>;
  children: React.ReactNode;
}) {
  return (
    <div className="min-w-0">
      <div className="flex items-center justify-between text-[11px] text-ink-faint">
        {label}
        <CopyButton text={copy} label="Copy" title={`Copy the ${label.toLowerCase()} as logged`} />
      </div>
      <div className="flex flex-col gap-1 rounded bg-app-side px-2 py-1">{children}</div>
    </div>
  );
}

function OutputPartView({ part, lastLines }: { part: OutputPart; lastLines: number | undefined }) {
  if (part.type === "image") {
    return (
      <img
        src={part.src}
        alt={`Image from the tool (${formatBytes(part.bytes)})`}
        loading="lazy"
        className="max-h-96 max-w-full self-start rounded border border-line object-contain"
      />
    );
  }
  return (
    <div>
      {part.label && <div className="text-[11px] text-ink-faint">{part.label}</div>}
      <Text text={part.text} isError={part.isError ?? false} lastLines={lastLines} />
    </div>
  );
}

/** The other arguments of a command, on one line. */
function OtherArguments({ values }: { values: Record<string, unknown> }) {
  const texts = Object.entries(values).map(
    ([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  return (
    texts.length > 0 && (
      <p className="text-[11px] break-words whitespace-pre-wrap text-ink-faint">{texts.join(" · ")}</p>
    )
  );
}

/** Return the command line of a call that has one, and its other arguments. */
function commandIn(input: unknown): { line: string; rest: Record<string, unknown> } | null {
  if (!isRecord(input)) return null;
  const { command, cmd, ...rest } = input;
  const line = command ?? cmd;
  return isText(line) && (command === undefined || cmd === undefined) ? { line, rest } : null;
}

const isEmpty = (input: unknown) => input == null || (isRecord(input) && Object.keys(input).length === 0);
