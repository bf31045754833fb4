import clsx from "clsx";
import type { ButtonHTMLAttributes } from "react";

const VARIANTS = {
  plain: "border border-border-strong bg-bg-pop text-text hover:bg-n-3",
  /** One per view. */
  primary: "border border-n-12 bg-n-12 text-n-1 hover:bg-n-11",
  danger: "border border-border-strong bg-bg-pop text-failed-text hover:bg-failed-bg",
  ghost: "text-text-2 hover:bg-bg-hover hover:text-text",
};
export type ButtonVariant = keyof typeof VARIANTS;

export const buttonClass = (variant: ButtonVariant = "plain", className?: string) =>
  clsx(
    "inline-flex h-(--control-h) shrink-0 items-center justify-center gap-1.5 rounded-2 px-2 text-12 font-medium whitespace-nowrap disabled:cursor-not-allowed disabled:opacity-50",
    VARIANTS[variant],
    className,
  );

export function Button({
  variant = "plain",
  className,
  ...rest
}: ButtonHTMLAttributes<HTMLButtonElement> & { variant?: ButtonVariant }) {
  return <button type="button" className={buttonClass(variant, className)} {...rest} />;
}
