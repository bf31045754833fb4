import { problemOf } from "@/api";
import { Button } from "@/components/ui/Button";
import { Icon } from "@/components/ui/Icon";

interface ErrorLineProps {
  /** What failed, as the beginning of a sentence. */
  what: string;
  error: unknown;
  onRetry?: () => void;
}

/** An error on one line, where the content would be. */
export function ErrorLine({ what, error, onRetry }: ErrorLineProps) {
  const { message, hint } = problemOf(error, 0);
  return (
    <div role="alert" className="error-line" title={hint ?? undefined}>
      <Icon name="warn" className="size-3.5 text-failed" />
      <span className="cut">
        {what}: {message}
      </span>
      {onRetry && (
        <Button variant="ghost" onClick={onRetry}>
          Retry
        </Button>
      )}
    </div>
  );
}

/** Rows of the height that the content will have; nothing for the first 200 ms. */
export function SkeletonRows({ subject, rows, height }: { subject: string; rows: number; height: number }) {
  return (
    <div role="status" className="skeleton-rows">
      <span className="sr-only">Loading {subject}…</span>
      {Array.from({ length: rows }, (_, index) => (
        <div key={index} aria-hidden style={{ height }}>
          <span className="skeleton" style={{ width: `${[38, 52, 30, 45][index % 4] ?? 40}%` }} />
        </div>
      ))}
    </div>
  );
}
