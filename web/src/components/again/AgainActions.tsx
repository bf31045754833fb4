import { useMutation, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { forkRun, inputQuery, replyToRun, rerunRun, type RunDetail } from "@/api";
import { Button } from "@/components/ui/Button";
import { Dialog } from "@/components/ui/Dialog";
import { ErrorMessage } from "@/components/ui/ErrorMessage";
import { isActive } from "@/views/detail";
import { isRecord } from "@/views/json";

type Question = "rerun" | "reply";

/** Buttons that make a new run from this one: run it again, edit and run it again, reply to its agent. */
export function AgainActions({ run }: { run: RunDetail }) {
  const [open, setOpen] = useState<Question | null>(null);
  const { mutate, isPending, error } = useNewRun(() => rerunRun(run.id, null));
  const isAgent = run.kind === "agent" && run.provider === run.worker_type;
  return (
    <>
      <Button variant="ghost" disabled={isPending} onClick={() => mutate()} title="Run it again with the same input">
        Rerun
      </Button>
      <Button variant="ghost" onClick={() => setOpen("rerun")}>
        Edit and rerun…
      </Button>
      {isAgent && !isActive(run.status) && (
        <Button variant="ghost" onClick={() => setOpen("reply")} title="Continue the agent’s session with a new prompt">
          Reply…
        </Button>
      )}
      {error && <ErrorMessage error={error} />}
      {open === "rerun" && <RerunDialog run={run} onClose={() => setOpen(null)} />}
      {open === "reply" && <ReplyDialog run={run} onClose={() => setOpen(null)} />}
    </>
  );
}

/** A button that forks the run at an event, for a row of the transcript or the timeline. */
export function ForkButton({ runId, seq }: { runId: string; seq: number }) {
  const { mutate, isPending, error } = useNewRun(() => forkRun(runId, seq));
  return (
    <>
      <Button
        variant="ghost"
        disabled={isPending}
        onClick={() => mutate()}
        title={`Start a new run with what happened up to event ${seq}`}
      >
        Fork here
      </Button>
      {error && <ErrorMessage error={error} />}
    </>
  );
}

function RerunDialog({ run, onClose }: { run: RunDetail; onClose: () => void }) {
  const { data, error } = useQuery(inputQuery(run.id));
  return (
    <Dialog title={`Run ${run.name} again`} onClose={onClose}>
      {error && <ErrorMessage error={error} />}
      {data && (
        <TextForm
          label="Input, as JSON"
          initial={JSON.stringify(data, null, 2)}
          action="Run"
          onClose={onClose}
          start={(text) => rerunRun(run.id, parseInput(text))}
        />
      )}
    </Dialog>
  );
}

function ReplyDialog({ run, onClose }: { run: RunDetail; onClose: () => void }) {
  return (
    <Dialog title={`Reply to ${run.name}`} onClose={onClose}>
      <TextForm
        label="What should the agent do next?"
        initial=""
        action="Send"
        onClose={onClose}
        start={(text) => replyToRun(run.id, text)}
      />
    </Dialog>
  );
}

interface TextFormProps {
  label: string;
  initial: string;
  action: string;
  onClose: () => void;
  start: (text: string) => Promise<{ run_id: string }>;
}

function TextForm({ label, initial, action, onClose, start }: TextFormProps) {
  const [text, setText] = useState(initial);
  const { mutate, isPending, error } = useNewRun(() => start(text), onClose);
  return (
    <form
      className="flex flex-col gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        mutate();
      }}
    >
      <label className="flex flex-col gap-1 text-xs text-ink-dull">
        {label}
        <textarea
          autoFocus
          rows={6}
          value={text}
          onChange={(event) => setText(event.target.value)}
          className="w-full rounded border border-line bg-app px-2 py-1 font-mono text-xs text-ink"
        />
      </label>
      {error && <ErrorMessage error={error} />}
      <span className="flex justify-end gap-2">
        <Button onClick={onClose}>Close</Button>
        <Button variant="primary" type="submit" disabled={isPending || !text.trim()}>
          {action}
        </Button>
      </span>
    </form>
  );
}

/** Start a run, and go to its page. */
function useNewRun(start: () => Promise<{ run_id: string }>, onStarted?: () => void) {
  const navigate = useNavigate({ from: "/agents/$agentId/workers" });
  return useMutation({
    mutationFn: async () => start(),
    onSuccess: ({ run_id }) => {
      onStarted?.();
      return navigate({ to: ".", search: ({ event, find, ...before }) => ({ ...before, worker: run_id }) });
    },
  });
}

function parseInput(text: string): Record<string, unknown> {
  const value: unknown = JSON.parse(text);
  if (!isRecord(value)) throw new Error("The input must be a JSON object.");
  return value;
}
