import clsx from "clsx";
import { approvalOf } from "@/views/pendingCalls";

/** What would be done if the user approves: the command, path or input, and the difference that an edit makes. */
export function ApprovalBody({ input }: { input: unknown }) {
  const { detail, diff } = approvalOf(input);
  return (
    <div className="flex flex-col gap-1">
      <pre className="max-h-48 overflow-auto rounded border border-line bg-app px-2 py-1 font-mono text-xs [overflow-wrap:anywhere] whitespace-pre-wrap">
        {detail}
      </pre>
      {diff !== null && (
        <pre
          aria-label="Difference"
          className="max-h-64 overflow-auto rounded border border-line bg-app px-2 py-1 font-mono text-xs"
        >
          {diff.split("\n").map((line, n) => (
            <span
              key={n}
              className={clsx("block", line.startsWith("+") && "text-done", line.startsWith("-") && "text-failed")}
            >
              {line}
            </span>
          ))}
        </pre>
      )}
    </div>
  );
}
