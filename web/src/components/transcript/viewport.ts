/**
 * The part of a long transcript that is in sight. Only that part is rendered; the rest is height. One row is the anchor
 * and stays where it is on the screen, whatever is loaded, expanded or added above it.
 */
import { type Page, pageOf, type RunLog } from "@/api";
import { Heights } from "@/views/heights";
import { estimateHeight, type Row } from "@/views/rowTypes";
import { rowsOf } from "@/views/transcriptRows";

export interface Range {
  readonly from: number;
  readonly to: number;
}

/** The anchor: the end of the log, or a row at a distance from the upper edge. */
type Anchor = "end" | { readonly seq: number; readonly y: number };

/** How far beyond the edges rows are rendered, in pixels. */
const OVERSCAN_PX = 800;
/** Closer to the end than this counts as at the end, in pixels. */
const NEAR_END_PX = 12;

export class Viewport {
  range: Range = { from: 1, to: 0 };
  readonly heights = new Heights();
  #anchor: Anchor;
  #scroller: HTMLElement | null = null;
  #sizer: HTMLElement | null = null;
  #list: HTMLElement | null = null;
  /** The last scroll position that this class has set: a scroll event from there is not the user's. */
  #ownScrollTop = 0;
  readonly #learned = new WeakSet<Page>();
  readonly #resizeObserver = new ResizeObserver(() => this.layout());

  constructor(
    readonly log: RunLog,
    readonly isSingleStep: boolean,
    isAtEnd: boolean,
    /** Called when another range is to be rendered, or when following the end starts or stops. */
    readonly onChange: () => void,
    /** Called with what is in sight, whenever it may have changed. */
    readonly onView: (visible: { first: number; last: number; isAtEnd: boolean }) => void = () => undefined,
  ) {
    this.#anchor = isAtEnd ? "end" : { seq: 1, y: 0 };
  }

  get isAtEnd(): boolean {
    return this.#anchor === "end";
  }

  attach(scroller: HTMLElement, sizer: HTMLElement, list: HTMLElement): () => void {
    [this.#scroller, this.#sizer, this.#list] = [scroller, sizer, list];
    for (const element of [scroller, list, scroller.lastElementChild])
      if (element) this.#resizeObserver.observe(element);
    scroller.addEventListener("scroll", this.#onScroll, { passive: true });
    return () => {
      this.#resizeObserver.disconnect();
      scroller.removeEventListener("scroll", this.#onScroll);
      this.#scroller = this.#sizer = this.#list = null;
    };
  }

  /** Measure the rendered rows and position everything. Must be called after each render. */
  layout(): void {
    const [scroller, sizer, list] = [this.#scroller, this.#sizer, this.#list];
    // Rows in a hidden pane have no height.
    if (!scroller || !sizer || !list || scroller.clientHeight === 0) return;
    this.heights.resize(this.log.lastSeq);
    this.#learnRows();
    for (const row of list.children) {
      const seq = row instanceof HTMLElement ? Number(row.dataset["seq"]) : Number.NaN;
      if (seq) this.heights.set(seq, row.getBoundingClientRect().height);
    }
    sizer.style.height = `${this.heights.total}px`;
    list.style.top = `${this.heights.top(this.range.from)}px`;
    const target = this.#anchoredScrollTop(scroller);
    if (Math.abs(scroller.scrollTop - target) >= 1) scroller.scrollTop = target;
    this.#ownScrollTop = scroller.scrollTop;
    this.#updateRange(scroller);
  }

  /** Make a row the anchor, `y` pixels below the upper edge or where it is now. */
  anchorAt(seq: number, y?: number): void {
    const scroller = this.#scroller;
    const now = scroller ? this.heights.top(seq) - scroller.scrollTop : 0;
    this.#setAnchor({ seq, y: y ?? now });
  }

  /** Scroll to a row, a third of the way down, so that the rows before it are visible too. */
  goTo(seq: number): void {
    this.anchorAt(seq, (this.#scroller?.clientHeight ?? 0) * 0.3);
    this.layout();
  }

  /** Whether the row is the anchor. */
  isAnchor(seq: number): boolean {
    return this.#anchor !== "end" && this.#anchor.seq === seq;
  }

  toEnd(): void {
    this.#setAnchor("end");
    this.layout();
  }

  /** Stop following the end. */
  stopFollowing(): void {
    const scroller = this.#scroller;
    if (scroller) this.#setAnchor(this.#anchorInSight(scroller));
  }

  /** Scroll no further than needed to have the row in sight. */
  scrollIntoView(seq: number): void {
    const scroller = this.#scroller;
    if (!scroller) return;
    const [top, height] = [this.heights.top(seq) - scroller.scrollTop, this.heights.get(seq)];
    const room = scroller.clientHeight;
    if (top >= 0 && top + height <= room) this.anchorAt(seq, top);
    else if (top < 0 || height > room) this.anchorAt(seq, 8);
    else this.anchorAt(seq, room - height - 8);
    this.layout();
  }

  /** The first row in sight. */
  get first(): number {
    return this.heights.at(this.#scroller?.scrollTop ?? 0);
  }

  get last(): number {
    return this.heights.at((this.#scroller?.scrollTop ?? 0) + (this.#scroller?.clientHeight ?? 0) - 1);
  }

  readonly #onScroll = () => {
    const scroller = this.#scroller;
    if (!scroller) return;
    if (Math.abs(scroller.scrollTop - this.#ownScrollTop) > 1.5) {
      this.#ownScrollTop = scroller.scrollTop;
      const below = scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop;
      this.#setAnchor(below <= NEAR_END_PX ? "end" : this.#anchorInSight(scroller));
    }
    this.#updateRange(scroller);
  };

  #setAnchor(anchor: Anchor): void {
    const isFollowChanged = (this.#anchor === "end") !== (anchor === "end");
    this.#anchor = anchor;
    if (isFollowChanged) this.onChange();
  }

  #anchorInSight(scroller: HTMLElement): Anchor {
    const seq = this.heights.at(scroller.scrollTop);
    return { seq, y: this.heights.top(seq) - scroller.scrollTop };
  }

  #anchoredScrollTop(scroller: HTMLElement): number {
    const max = scroller.scrollHeight - scroller.clientHeight;
    if (this.#anchor === "end") return max;
    return Math.max(0, Math.min(max, this.heights.top(this.#anchor.seq) - this.#anchor.y));
  }

  #updateRange(scroller: HTMLElement): void {
    this.onView({ first: this.first, last: this.last, isAtEnd: this.isAtEnd });
    const from = Math.max(1, this.heights.at(scroller.scrollTop - OVERSCAN_PX));
    const to = this.heights.at(scroller.scrollTop + scroller.clientHeight + OVERSCAN_PX);
    if (from === this.range.from && to === this.range.to) return;
    this.range = { from, to };
    this.onChange();
  }

  /** Learn from the pages near the range which events have rows, and estimate their heights. */
  #learnRows(): void {
    const last = pageOf(Math.max(1, this.range.to));
    for (let number = pageOf(this.range.from); number <= last; number++) {
      const page = this.log.page(number);
      if (!page || this.#learned.has(page)) continue;
      this.#learned.add(page);
      const isNew = !this.heights.hasMeasured(number);
      const rows = rowsOf(page, this.isSingleStep);
      for (const { seq } of page.events) this.#learnRow(seq, rows.get(seq), isNew);
    }
  }

  #learnRow(seq: number, row: Row | undefined, isNew: boolean): void {
    if (!row) this.heights.set(seq, 0);
    else if (isNew || this.heights.get(seq) === 0) this.heights.set(seq, estimateHeight(row));
  }
}
