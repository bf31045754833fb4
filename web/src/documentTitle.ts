/** The title and the icon of the browser tab: what the page shows, and how much waits for the user. */
import { useEffect } from "react";

const NAME = "Shopfloor";
/** A larger number does not fit the icon. */
const MAX_ICON_COUNT = 9;
let pageTitle = NAME;
let waitingCount = 0;

function show(): void {
  document.title = waitingCount > 0 ? `(${waitingCount.toLocaleString("en")}) ${pageTitle}` : pageTitle;
}

/** Set the title of the tab while the component is mounted. */
export function useDocumentTitle(title: string = NAME): void {
  useEffect(() => {
    pageTitle = title;
    show();
    return () => {
      pageTitle = NAME;
      show();
    };
  }, [title]);
}

/** Show in the title and the icon of the tab how much waits for the user. */
export function useTabCount(count: number): void {
  useEffect(() => {
    waitingCount = count;
    show();
    const link = document.querySelector<HTMLLinkElement>('link[rel="icon"]');
    if (!link) return;
    link.dataset.original ??= link.href;
    link.href = count > 0 ? iconWithCount(count) : link.dataset.original;
  }, [count]);
}

const iconWithCount = (count: number) =>
  `data:image/svg+xml,${encodeURIComponent(
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">' +
      '<rect width="32" height="32" rx="8" fill="#16171b"/>' +
      '<path d="M8 10.5h16M8 16h10M8 21.5h13" stroke="#fff" stroke-width="3" stroke-linecap="round"/>' +
      '<circle cx="22" cy="22" r="10" fill="#d92d20" stroke="#fff" stroke-width="2"/>' +
      '<text x="22" y="27" font-family="sans-serif" font-size="14" font-weight="700" fill="#fff" text-anchor="middle">' +
      `${count > MAX_ICON_COUNT ? `${MAX_ICON_COUNT}+` : count}</text></svg>`,
  )}`;
