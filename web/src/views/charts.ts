/** Geometry of the small charts. */

export interface Sparkline {
  readonly line: string;
  readonly area: string;
  readonly last: { x: number; y: number } | null;
}

/** Return the paths of a curve in a box; the lowest value of the scale is 0. Fewer than two values have no curve. */
export function sparkline(
  values: readonly number[],
  { width, height, max }: { width: number; height: number; max?: number | undefined },
): Sparkline {
  const top = max ?? Math.max(0, ...values);
  const [left, right, padding] = [1, width - 3, 2];
  const y = (value: number) => {
    const share = top > 0 ? Math.min(1, Math.max(0, value / top)) : 0;
    return height - padding - share * (height - 2 * padding);
  };
  const x = (index: number) => (values.length > 1 ? left + (index * (right - left)) / (values.length - 1) : right);
  const points = values.map((value, index) => ({ x: x(index), y: y(value) }));
  const last = points.at(-1) ?? null;
  if (points.length < 2 || !last) return { line: "", area: "", last };
  const line = points.map((point, index) => `${index ? "L" : "M"}${round(point.x)} ${round(point.y)}`).join(" ");
  return { line, area: `${line} L${round(last.x)} ${height} L${left} ${height}Z`, last };
}

const round = (value: number) => Math.round(value * 10) / 10;

/** Return the marks of an axis from 0 to at least `highest`, in steps that read well: 1, 2, 2.5 or 5 times a power of ten. */
export function axisTicks(highest: number, count = 3): readonly number[] {
  if (!(highest > 0)) return [0, 1];
  const rough = highest / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  // A quarter of ten cents or less has more than two digits.
  const factors = power < 0.1 ? [1, 2, 5, 10] : [1, 2, 2.5, 5, 10];
  const step = (factors.find((factor) => factor * power >= rough * 0.999) ?? 10) * power;
  const steps = Math.ceil(highest / step - 1e-9);
  return Array.from({ length: steps + 1 }, (_, index) => Number((index * step).toPrecision(12)));
}
