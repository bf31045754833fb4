import { problemOf } from "@/api";
import { Button } from "./Button";
import { Message } from "./Message";

/** An error with its hint and code, and optionally a button to try again: one line, if there is room. */
export function ErrorMessage({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const problem = problemOf(error, 0);
  return (
    <div
      role="alert"
      className="m-3 flex flex-wrap items-center gap-x-3 gap-y-1 rounded-2 bg-failed-bg px-3 py-2 text-12 text-failed-text"
    >
      <p className="font-medium [overflow-wrap:anywhere]">{problem.message}</p>
      {problem.hint && (
        <p className="[overflow-wrap:anywhere]">
          <Message text={problem.hint} />
        </p>
      )}
      <p className="font-mono text-11">{problem.code}</p>
      {onRetry && (
        <Button className="ml-auto" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}
