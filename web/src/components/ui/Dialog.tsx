import { type ReactNode, useEffect, useRef } from "react";

/** A modal dialog. The browser's own element keeps the focus inside and closes on Escape. */
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ReactNode }) {
  const dialogRef = useRef<HTMLDialogElement>(null);
  // A drag that starts inside, such as a text selection, and ends on the backdrop must not close the dialog.
  const startedOutsideRef = useRef(false);
  useEffect(() => {
    dialogRef.current?.showModal();
  }, []);
  return (
    <dialog
      ref={dialogRef}
      aria-label={title}
      onClose={onClose}
      onPointerDown={(event) => {
        startedOutsideRef.current = event.target === dialogRef.current;
      }}
      onClick={(event) => {
        if (startedOutsideRef.current && event.target === dialogRef.current) dialogRef.current.close();
      }}
      className="m-auto max-h-[90dvh] outline-none w-[min(40rem,calc(100vw-2rem))] overflow-auto rounded-4 border border-border bg-bg-pop p-0 text-text shadow-(--shadow-3) backdrop:bg-black/40"
    >
      <div className="p-4">
        <h2 className="mb-3 text-14 font-semibold">{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
