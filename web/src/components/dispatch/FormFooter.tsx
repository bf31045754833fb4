import type { ReactNode } from "react";
import { Button } from "@/components/ui/Button";

interface FormFooterProps {
  /** Whether the form can be submitted now. */
  canRun: boolean;
  isStarting?: boolean;
  onClose: () => void;
  /** The error message, if there is one. */
  children?: ReactNode;
}

/** The buttons at the end of the form, always in sight. */
export function FormFooter({ canRun, isStarting = false, onClose, children }: FormFooterProps) {
  return (
    <div className="sticky bottom-0 -mx-4 -mb-4 border-t border-border bg-bg-pop px-4 py-3">
      {children}
      <div className="flex items-center justify-end gap-3">
        <span className="flex items-center gap-1 text-12 text-text-3">
          <kbd>Ctrl</kbd>
          <kbd>Enter</kbd>
        </span>
        <Button variant="ghost" onClick={onClose}>
          Cancel
        </Button>
        <Button type="submit" variant="primary" disabled={!canRun} className="px-4">
          {isStarting ? "Starting…" : "Run"}
        </Button>
      </div>
    </div>
  );
}
