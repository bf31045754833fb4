import clsx from "clsx";
import { type KeyboardEvent, type ReactNode, type RefObject, useId } from "react";
import { buttonClass, type ButtonVariant } from "./Button";

interface MenuProps {
  /** The name of the button and the menu. */
  label: string;
  title?: string;
  variant?: ButtonVariant;
  className?: string;
  /** The name of the anchor below which the menu opens: one name per button on a page. */
  anchor?: "menu" | "sort";
  /** What the button shows. */
  content: ReactNode;
  /** The element of the menu, so that a key can open it. */
  menuRef?: RefObject<HTMLDivElement | null>;
  children: ReactNode;
}

/** A button with a menu below it. Arrow keys move in the menu; Escape closes it, and the button has the focus again. */
export function Menu({
  label,
  title,
  variant = "plain",
  className,
  anchor = "menu",
  content,
  menuRef,
  children,
}: MenuProps) {
  const id = useId();
  return (
    <>
      <button
        type="button"
        popoverTarget={id}
        aria-haspopup="menu"
        aria-label={label}
        title={title}
        className={buttonClass(variant, clsx(`${anchor}-anchor`, className))}
      >
        {content}
      </button>
      <div
        ref={menuRef}
        id={id}
        popover="auto"
        role="menu"
        aria-label={label}
        onToggle={({ currentTarget, newState }) => {
          if (newState === "open" && !currentTarget.contains(document.activeElement))
            itemsOf(currentTarget)[0]?.focus();
        }}
        onKeyDown={moveByKeys}
        onClick={({ currentTarget, target }) => {
          if (target instanceof Element && target.closest("[role^=menuitem]")) currentTarget.hidePopover();
        }}
        className={`anchored-${anchor} min-w-52 rounded-3 border border-border bg-bg-pop p-1 text-text shadow-(--shadow-2)`}
      >
        {children}
      </div>
    </>
  );
}

const itemsOf = (menu: HTMLElement) => [
  ...menu.querySelectorAll<HTMLElement>('[role^="menuitem"]:not(:disabled, [aria-disabled="true"])'),
];

function moveByKeys(event: KeyboardEvent<HTMLElement>): void {
  const items = itemsOf(event.currentTarget);
  const index = items.findIndex((item) => item === document.activeElement);
  const target = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: -1 }[event.key];
  if (event.key === "Tab") event.currentTarget.hidePopover();
  if (target === undefined) return;
  event.preventDefault();
  items.at(target >= items.length ? 0 : target)?.focus();
}

const ITEM_CLASS =
  "flex h-7 w-full items-center gap-2 rounded-1 px-2 text-left text-12 whitespace-nowrap -outline-offset-2 hover:bg-bg-hover focus:bg-bg-hover disabled:opacity-50 coarse:h-10";

interface ItemProps {
  icon?: ReactNode;
  /** The key that does the same. */
  shortcut?: string;
  isDangerous?: boolean;
  /** For a choice among items: whether it is the current one. */
  isChecked?: boolean;
  disabled?: boolean;
  title?: string;
  onSelect: () => void;
  children: ReactNode;
}

export function MenuItem({
  icon,
  shortcut,
  isDangerous = false,
  isChecked,
  disabled,
  title,
  onSelect,
  children,
}: ItemProps) {
  return (
    <button
      type="button"
      role={isChecked === undefined ? "menuitem" : "menuitemradio"}
      aria-checked={isChecked}
      tabIndex={-1}
      disabled={disabled}
      title={title}
      onClick={onSelect}
      className={clsx(ITEM_CLASS, isDangerous && "text-failed-text")}
    >
      <ItemContent icon={icon} shortcut={shortcut}>
        {children}
      </ItemContent>
    </button>
  );
}

/** An item that downloads a file. */
export function MenuDownload({ href, shortcut, icon, children }: Omit<ItemProps, "onSelect"> & { href: string }) {
  return (
    <a href={href} download role="menuitem" tabIndex={-1} className={ITEM_CLASS}>
      <ItemContent icon={icon} shortcut={shortcut}>
        {children}
      </ItemContent>
    </a>
  );
}

function ItemContent({
  icon,
  shortcut,
  children,
}: {
  icon: ReactNode;
  shortcut: string | undefined;
  children: ReactNode;
}) {
  return (
    <>
      <span className="flex w-4 justify-center text-icon">{icon}</span>
      <span className="min-w-0 flex-1 truncate">{children}</span>
      {shortcut !== undefined && <kbd aria-hidden>{shortcut}</kbd>}
    </>
  );
}

export const MenuSeparator = () => <div role="separator" className="my-1 h-px bg-border" />;
