import clsx from "clsx";
import type { ButtonHTMLAttributes } from "react";

const VARIANTS = {
  plain: "border border-line bg-app-raised hover:bg-app-hover text-ink",
  primary: "bg-accent text-accent-ink hover:opacity-90",
  danger: "bg-failed-back text-failed hover:opacity-90",
  ghost: "text-ink-dull hover:bg-app-hover hover:text-ink",
};

export function Button({
  variant: variant = "plain",
  className,
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { variant?: keyof typeof VARIANTS }) {
  return (
    <button
      type="button"
      className={clsx(
        "inline-flex items-center gap-1 rounded px-2 py-1 text-xs font-medium disabled:cursor-not-allowed disabled:opacity-50",
        VARIANTS[variant],
        className,
      )}
      {...rest}
    />
  );
}
