import type { EventOf } from "@/api";
import { CopyButton } from "@/components/ui/CopyButton";
import { formatBytes } from "@/views/amounts";
import { changesOf } from "@/views/diff";
import { headline } from "@/views/headline";
import { languageOf } from "@/views/highlight";
import { asText, isRecord, isText } from "@/views/json";
import { outputsOf, type OutputPart } from "@/views/outputs";
import { toolIcon } from "@/views/toolIcons";
import { FileDiffs } from "./FileDiffs";
import { TruncationNotice } from "./TruncationNotice";
import { useTranscriptContext, useFullEvent } from "./transcriptContext";
import { RowStatePart } from "./rowState";
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
    <div className="border-t border-border">
      {/* An edit is shown as a diff below, not as its input. */}
      {changes.length === 0 && !isEmpty(input) && (
        <Section label={command ? "Command" : "Input"} copy={() => asText(command?.line ?? input)}>
          <Text text={command?.line ?? asText(input)} language={command ? "shell" : "javascript"} />
          {command && <OtherArguments values={command.rest} />}
        </Section>
      )}
      <TruncationNotice full={fullCall} />
      {result ? <ResultBody result={result} input={input} name={call.payload.name} /> : <FileDiffs files={changes} />}
    </div>
  );
}

interface ResultProps {
  result: EventOf<"tool.result">;
  input: unknown;
  /** The name of the tool. */
  name: string;
}

export function ResultBody({ result, input, name }: ResultProps) {
  const { log } = useTranscriptContext();
  const fullResult = useFullEvent(result, true);
  const payload = fullResult.event.payload;
  const changes = changesOf(input, payload.files);
  const parts = outputsOf(payload);
  // What was read from a file has the colors of its language.
  const language = toolIcon(name) === "file" && payload.error == null ? languageOf(headline(input)) : null;
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
          <p key={file.path} className="px-3 py-1 font-mono text-12 text-text-2">{`${file.action} ${file.path}`}</p>
        ))}
      {parts.length > 0 ? (
        <Section label={payload.error != null ? "Error" : "Result"} copy={loadRaw}>
          {parts.map((part, n) => (
            <RowStatePart key={n} name={`output ${n}`}>
              <OutputPartView
                part={part}
                language={language}
                lastLines={isCommand && fullResult.truncatedBytes === null ? LAST_LINES : undefined}
              />
            </RowStatePart>
          ))}
        </Section>
      ) : (
        changes.length === 0 && <p className="px-3 py-1.5 text-12 text-text-3">No output.</p>
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
    <div className="group/section relative min-w-0 bg-bg-sunken px-3 py-1.5 not-first:border-t not-first:border-border">
      <span className="sr-only">{label}</span>
      <div className="absolute top-1 right-1.5 z-10 rounded-2 bg-bg-sunken opacity-0 group-hover/section:opacity-100 focus-within:opacity-100 coarse:opacity-100 [&>button]:h-6">
        <CopyButton text={copy} icon="copy" label="Copy" title={`Copy the ${label.toLowerCase()} as logged`} />
      </div>
      <div className="flex flex-col gap-1">{children}</div>
    </div>
  );
}

interface OutputProps {
  part: OutputPart;
  lastLines: number | undefined;
  language: string | null;
}

function OutputPartView({ part, lastLines, language }: OutputProps) {
  if (part.type === "image") {
    return (
      <img
        src={part.src}
        alt={`Image from the tool (${formatBytes(part.bytes)})`}
        loading="lazy"
        className="max-h-96 max-w-full self-start rounded border border-border object-contain"
      />
    );
  }
  return (
    <div>
      {part.label && <div className="text-11 text-text-3">{part.label}</div>}
      <Text
        text={part.text}
        // The output of a command has colors of its own.
        isError={part.isError === true && lastLines === undefined}
        lastLines={lastLines}
        language={language}
      />
    </div>
  );
}

/** The other arguments of a command, on one line. */
function OtherArguments({ values }: { values: Record<string, unknown> }) {
  const texts = Object.entries(values).map(
    ([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  return texts.length > 0 && <p className="text-11 break-words whitespace-pre-wrap text-text-3">{texts.join(" · ")}</p>;
}

/** Return the command line of a call that has one, and its other arguments. */
function commandIn(input: unknown): { line: string; rest: Record<string, unknown> } | null {
  if (!isRecord(input)) return null;
  const { command, cmd, ...rest } = input;
  const line = command ?? cmd;
  return isText(line) && (command === undefined || cmd === undefined) ? { line, rest } : null;
}

const isEmpty = (input: unknown) => input == null || (isRecord(input) && Object.keys(input).length === 0);
