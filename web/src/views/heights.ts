/**
 * Heights and positions of the rows of a log: measured for rendered rows, estimated for the others. Sums are kept by
 * page, so that a lookup among hundreds of thousands of rows touches few of them.
 */
import { PAGE_EVENTS, pageOf } from "@/api";

/** Estimated height of an event that is not loaded. */
const ESTIMATED_PX = 28;
/** The largest height in pixels; Firefox renders nothing beyond about 17 million. */
const MAX_TOTAL_PX = 12_000_000;

export class Heights {
  count = 0;
  #estimate = ESTIMATED_PX;
  readonly #rows = new Map<number, Float64Array>();
  #sums: number[] = [];
  /** Top of each page; valid up to index `#stale`. */
  #tops: number[] = [0];
  #stale = 0;

  /** Set the number of rows. */
  resize(count: number): void {
    if (count === this.count) return;
    const estimate = Math.min(ESTIMATED_PX, MAX_TOTAL_PX / Math.max(1, count));
    const from = estimate === this.#estimate ? pageOf(Math.max(1, Math.min(count, this.count))) : 0;
    this.#estimate = estimate;
    this.count = count;
    for (const number of [...this.#rows.keys()]) if (number * PAGE_EVENTS >= count) this.#rows.delete(number);
    for (let number = from; number < this.#pageCount(); number++) this.#updateSum(number);
    this.#sums.length = this.#pageCount();
    this.#stale = Math.min(this.#stale, from);
  }

  /** Set the height of a row. Return false if it is unchanged. */
  set(seq: number, height: number): boolean {
    if (seq < 1 || seq > this.count) return false;
    const number = pageOf(seq);
    const rows = this.#page(number);
    const index = (seq - 1) % PAGE_EVENTS;
    if (Math.abs((rows[index] ?? 0) - height) < 0.05) return false;
    rows[index] = height;
    this.#updateSum(number);
    return true;
  }

  get(seq: number): number {
    return this.#rows.get(pageOf(seq))?.[(seq - 1) % PAGE_EVENTS] ?? this.#estimate;
  }

  /** Whether a height of the page was ever set. */
  hasMeasured(page: number): boolean {
    return this.#rows.has(page);
  }

  get total(): number {
    const last = this.#pageCount() - 1;
    return last < 0 ? 0 : this.#topOfPage(last) + (this.#sums[last] ?? 0);
  }

  /** Return the top of a row; for the row after the last one, the total height. */
  top(seq: number): number {
    if (seq > this.count) return this.total;
    const number = pageOf(Math.max(1, seq));
    const rows = this.#rows.get(number);
    const index = (Math.max(1, seq) - 1) % PAGE_EVENTS;
    let top = this.#topOfPage(number);
    if (!rows) return top + index * this.#estimate;
    for (let n = 0; n < index; n++) top += rows[n] ?? 0;
    return top;
  }

  /** Return the row at an offset; beyond the ends, the nearest row. */
  at(offset: number): number {
    if (this.count === 0) return 0;
    let [low, high] = [0, this.#pageCount() - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.#topOfPage(middle) <= offset) low = middle;
      else high = middle - 1;
    }
    let top = this.#topOfPage(low);
    const [first, last] = [low * PAGE_EVENTS + 1, Math.min(this.count, (low + 1) * PAGE_EVENTS)];
    for (let seq = first; seq < last; seq++) {
      top += this.get(seq);
      if (top > offset) return seq;
    }
    return last;
  }

  #pageCount(): number {
    return Math.ceil(this.count / PAGE_EVENTS);
  }

  #page(number: number): Float64Array {
    let rows = this.#rows.get(number);
    if (!rows) {
      rows = new Float64Array(PAGE_EVENTS).fill(this.#estimate);
      this.#rows.set(number, rows);
    }
    return rows;
  }

  #updateSum(number: number): void {
    const rows = this.#rows.get(number);
    const count = Math.min(PAGE_EVENTS, this.count - number * PAGE_EVENTS);
    let sum = rows ? 0 : count * this.#estimate;
    if (rows) for (let n = 0; n < count; n++) sum += rows[n] ?? 0;
    this.#sums[number] = sum;
    this.#stale = Math.min(this.#stale, number);
  }

  #topOfPage(number: number): number {
    for (; this.#stale < number; this.#stale++) {
      this.#tops[this.#stale + 1] = (this.#tops[this.#stale] ?? 0) + (this.#sums[this.#stale] ?? 0);
    }
    return this.#tops[number] ?? 0;
  }
}
