import { problemOf } from "@/api";
import { Button } from "./Button";
import { Message } from "./Message";

/** An error with its hint and code, and optionally a button to try again. */
export function ErrorMessage({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const problem = problemOf(error, 0);
  return (
    <div role="alert" className="m-3 rounded-2 bg-failed-bg p-3 text-failed-text">
      <p className="font-medium break-words">{problem.message}</p>
      {problem.hint && (
        <p className="mt-1 break-words">
          <Message text={problem.hint} />
        </p>
      )}
      <p className="mt-1 font-mono text-xs">{problem.code}</p>
      {onRetry && (
        <Button className="mt-2" onClick={onRetry}>
          Try again
        </Button>
      )}
    </div>
  );
}
