import clsx from "clsx";

/** The key of a choice, on its button. While the key does something else its place stays empty, so that nothing moves. */
export const NumberKey = ({ index, isShown }: { index: number; isShown: boolean }) => (
  <kbd aria-hidden className={clsx(index === 0 && "bg-n-11! text-n-1! shadow-none!", !isShown && "invisible")}>
    {index + 1}
  </kbd>
);
