/**
 * Heights and positions of the rows of a log: measured for rendered rows, estimated for the others. Sums are kept by
 * page, so that a lookup among hundreds of thousands of rows touches few of them.
 */
import { PAGE, pageOf } from "@/api";

/** Estimated height of an event that is not loaded. */
const GUESS = 28;
/** The largest height in pixels; Firefox renders nothing beyond about 17 million. */
const MOST = 12_000_000;

export class Heights {
  count = 0;
  #guess = GUESS;
  readonly #rows = new Map<number, Float64Array>();
  #sums: number[] = [];
  /** Top of each page; valid up to index `#stale`. */
  #tops: number[] = [0];
  #stale = 0;

  /** Set the number of rows. */
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

  /** Set the height of a row. Return false where it is unchanged. */
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

  /** Whether a height of the page was ever set. */
  knows(page: number): boolean {
    return this.#rows.has(page);
  }

  get total(): number {
    const last = this.#pages() - 1;
    return last < 0 ? 0 : this.#top(last) + (this.#sums[last] ?? 0);
  }

  /** Return the top of a row; for the row after the last one, the total height. */
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

  /** Return the row at an offset; beyond the ends, the nearest row. */
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
