/**
 * How high the rows of a log are, and so where each is: measured where they were drawn, guessed where they were not.
 * Sums are kept by page, so that of hundreds of thousands of rows none is looked at that is not near.
 */
import { PAGE, pageOf } from "@/api";

/** What an event that was not loaded is taken for. */
const GUESS = 28;
/** Browsers draw nothing that is higher than this (Firefox: some 17 million pixels). */
const MOST = 12_000_000;

export class Heights {
  count = 0;
  #guess = GUESS;
  readonly #rows = new Map<number, Float64Array>();
  #sums: number[] = [];
  /** Where each page begins; right up to the first of `#stale`. */
  #tops: number[] = [0];
  #stale = 0;

  /** There are so many rows now. */
  resize(count: number): void {
    if (count === this.count) return;
    const guess = Math.min(GUESS, MOST / Math.max(1, count));
    const from = guess === this.#guess ? pageOf(Math.max(1, Math.min(count, this.count))) : 0;
    this.#guess = guess;
    this.count = count;
    for (const number of [...this.#rows.keys()]) if (number * PAGE >= count) this.#rows.delete(number);
    for (let number = from; number < this.#pages(); number++) this.#sum(number);
    this.#sums.length = this.#pages();
    this.#stale = Math.min(this.#stale, from);
  }

  /** Gives a row its height; false where that is nothing new. */
  set(seq: number, height: number): boolean {
    if (seq < 1 || seq > this.count) return false;
    const number = pageOf(seq);
    const rows = this.#page(number);
    const index = (seq - 1) % PAGE;
    if (Math.abs((rows[index] ?? 0) - height) < 0.05) return false;
    rows[index] = height;
    this.#sum(number);
    return true;
  }

  get(seq: number): number {
    return this.#rows.get(pageOf(seq))?.[(seq - 1) % PAGE] ?? this.#guess;
  }

  /** Whether anything is known of the rows of the page. */
  knows(page: number): boolean {
    return this.#rows.has(page);
  }

  get total(): number {
    const last = this.#pages() - 1;
    return last < 0 ? 0 : this.#top(last) + (this.#sums[last] ?? 0);
  }

  /** Where a row begins; where the last one ends for the one after it. */
  top(seq: number): number {
    if (seq > this.count) return this.total;
    const number = pageOf(Math.max(1, seq));
    const rows = this.#rows.get(number);
    const index = (Math.max(1, seq) - 1) % PAGE;
    let top = this.#top(number);
    if (!rows) return top + index * this.#guess;
    for (let n = 0; n < index; n++) top += rows[n] ?? 0;
    return top;
  }

  /** The row at that place; the nearest one beyond the ends. */
  at(offset: number): number {
    if (this.count === 0) return 0;
    let [low, high] = [0, this.#pages() - 1];
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if (this.#top(middle) <= offset) low = middle;
      else high = middle - 1;
    }
    let top = this.#top(low);
    const [first, last] = [low * PAGE + 1, Math.min(this.count, (low + 1) * PAGE)];
    for (let seq = first; seq < last; seq++) {
      top += this.get(seq);
      if (top > offset) return seq;
    }
    return last;
  }

  #pages(): number {
    return Math.ceil(this.count / PAGE);
  }

  #page(number: number): Float64Array {
    let rows = this.#rows.get(number);
    if (!rows) {
      rows = new Float64Array(PAGE).fill(this.#guess);
      this.#rows.set(number, rows);
    }
    return rows;
  }

  #sum(number: number): void {
    const rows = this.#rows.get(number);
    const count = Math.min(PAGE, this.count - number * PAGE);
    let sum = rows ? 0 : count * this.#guess;
    if (rows) for (let n = 0; n < count; n++) sum += rows[n] ?? 0;
    this.#sums[number] = sum;
    this.#stale = Math.min(this.#stale, number);
  }

  #top(number: number): number {
    for (; this.#stale < number; this.#stale++) {
      this.#tops[this.#stale + 1] = (this.#tops[this.#stale] ?? 0) + (this.#sums[this.#stale] ?? 0);
    }
    return this.#tops[number] ?? 0;
  }
}
