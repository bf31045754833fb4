import type { EventOf } from "@/api";
import { Copy } from "@/components/ui/CopyButton";
import { bytes } from "@/views/amounts";
import { changesOf } from "@/views/diff";
import { asText, isRecord, isText } from "@/views/json";
import { outputsOf, type Shown } from "@/views/outputs";
import { Changes } from "./FileDiffs";
import { Cut } from "./TruncationNotice";
import { useReading, useWhole } from "./transcriptContext";
import { Text } from "./Text";

/** How many lines of a command's output are shown at first. */
const LAST_LINES = 12;

/** The input and the result of a call. */
export function CallBody({ call, result }: { call: EventOf<"tool.call">; result: EventOf<"tool.result"> | null }) {
  const asked = useWhole(call, true);
  const input = asked.event.payload.input;
  const changes = changesOf(input, null);
  const command = commandIn(input);
  return (
    <div className="flex flex-col gap-2 border-t border-line p-2">
      {/* An edit is shown as a diff below, not as its input. */}
      {changes.length === 0 && !isEmpty(input) && (
        <Part label={command ? "Command" : "Given"} copy={() => asText(command?.line ?? input)}>
          <Text text={command?.line ?? asText(input)} />
          {command && <Rest given={command.rest} />}
        </Part>
      )}
      <Cut whole={asked} />
      {result ? <ResultBody result={result} input={input} /> : <Changes files={changes} />}
    </div>
  );
}

export function ResultBody({ result, input }: { result: EventOf<"tool.result">; input: unknown }) {
  const { log } = useReading();
  const whole = useWhole(result, true);
  const payload = whole.event.payload;
  const changes = changesOf(input, payload.files);
  const shown = outputsOf(payload);
  const isCommand = payload.exit_code != null || commandIn(input) !== null;
  const raw = async () => {
    const got = result.cut === undefined ? result : await log.whole(result.seq);
    const all = got.type === "tool.result" ? got.payload : payload;
    return all.output == null && all.error != null ? all.error : asText(all.output);
  };
  return (
    <>
      <Changes files={changes} />
      {!changes.length &&
        payload.files?.map((file) => (
          <p key={file.path} className="font-mono text-xs text-ink-dull">{`${file.action} ${file.path}`}</p>
        ))}
      {shown.length > 0 ? (
        <Part label={payload.error != null ? "Error" : "Result"} copy={raw}>
          {shown.map((part, n) => (
            <Output key={n} part={part} last={isCommand && whole.cut === null ? LAST_LINES : undefined} />
          ))}
        </Part>
      ) : (
        changes.length === 0 && <p className="text-xs text-ink-faint">It gave nothing.</p>
      )}
      <Cut whole={whole} />
    </>
  );
}

function Part({
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
        <Copy text={copy} label="Copy" title={`Copy: ${label.toLowerCase()}, as it is in the log`} />
      </div>
      <div className="flex flex-col gap-1 rounded bg-app-side px-2 py-1">{children}</div>
    </div>
  );
}

function Output({ part, last }: { part: Shown; last: number | undefined }) {
  if (part.type === "image") {
    return (
      <img
        src={part.src}
        alt={`Picture that the tool gave (${bytes(part.bytes)})`}
        loading="lazy"
        className="max-h-96 max-w-full self-start rounded border border-line object-contain"
      />
    );
  }
  return (
    <div>
      {part.label && <div className="text-[11px] text-ink-faint">{part.label}</div>}
      <Text text={part.text} bad={part.bad ?? false} last={last} />
    </div>
  );
}

/** The other arguments of a command, on one line. */
function Rest({ given }: { given: Record<string, unknown> }) {
  const said = Object.entries(given).map(
    ([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`,
  );
  return (
    said.length > 0 && <p className="text-[11px] break-words whitespace-pre-wrap text-ink-faint">{said.join(" · ")}</p>
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
