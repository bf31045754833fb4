import { FileDiffs } from "@/components/transcript/FileDiffs";
import { approvalOf } from "@/views/pendingCalls";
import { parseUnifiedDiff } from "@/views/diff";

/** What would be done if the user approves: the command, path or input, and the difference that an edit makes. */
export function ApprovalBody({ input }: { input: unknown }) {
  const { detail, others, diff } = approvalOf(input);
  return (
    <div className="divide-y divide-border overflow-hidden rounded-2 border border-border bg-bg">
      {diff === null ? (
        <Plain text={detail} />
      ) : (
        <div role="group" aria-label="Difference">
          <FileDiffs files={[{ path: detail, action: "modify", lines: parseUnifiedDiff(diff) }]} />
        </div>
      )}
      {others !== null && <Plain text={others} />}
    </div>
  );
}

function Plain({ text }: { text: string }) {
  return (
    <pre
      tabIndex={0}
      className="thin-scroll max-h-48 overflow-auto px-2.5 py-1.5 font-mono text-[11.5px] leading-[18px] [overflow-wrap:anywhere] whitespace-pre-wrap"
    >
      {text}
    </pre>
  );
}
