/**
 * Keeps transcript and timeline in sync: what the one shows, the other marks. Rows of both carry the number of their
 * event as `data-seq`.
 */
export interface VisibleRange {
  readonly first: number;
  readonly last: number;
  /** Whether the transcript is at its end, and follows it while the run adds events. */
  readonly isAtEnd: boolean;
}

const NOTHING: VisibleRange = { first: 0, last: 0, isAtEnd: true };

export class ViewSync {
  /** The events that the transcript shows now. */
  visible = NOTHING;
  readonly #listeners = new Set<() => void>();
  readonly #panes = new Set<HTMLElement>();
  #hovered: number | null = null;
  #next = NOTHING;
  #isScheduled = false;

  subscribe = (listener: () => void) => {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  };

  getVisible = () => this.visible;

  /** Set what the transcript shows. Listeners are called at most once per frame: the timeline renders for it. */
  setVisible(next: VisibleRange): void {
    this.#next = next;
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      const { first, last, isAtEnd } = this.visible;
      if (this.#next.first === first && this.#next.last === last && this.#next.isAtEnd === isAtEnd) return;
      this.visible = this.#next;
      for (const listener of this.#listeners) listener();
    });
  }

  /** Register a list of rows until the returned function is called. */
  addPane(pane: HTMLElement): () => void {
    this.#panes.add(pane);
    return () => void this.#panes.delete(pane);
  }

  /** Mark the row under the pointer in both panes. The DOM is changed directly: rendering all rows would be slow. */
  hover(element: Element | null): void {
    const row = element?.closest<HTMLElement>("[data-seq]");
    const seq = row ? Number(row.dataset["seq"]) : null;
    if (seq === this.#hovered) return;
    this.#hovered = seq;
    for (const pane of this.#panes) {
      for (const marked of pane.querySelectorAll("[data-hovered]")) marked.removeAttribute("data-hovered");
      if (seq !== null && !pane.contains(row ?? null)) rowOf(pane, seq)?.setAttribute("data-hovered", "");
    }
  }
}

/** Return the row of an event, or the row before it, which may include it. */
function rowOf(pane: HTMLElement, seq: number): HTMLElement | undefined {
  return [...pane.querySelectorAll<HTMLElement>("[data-seq]")].findLast((row) => Number(row.dataset["seq"]) <= seq);
}
