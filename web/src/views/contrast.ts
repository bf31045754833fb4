/** Contrast of colors by WCAG 2, and colors that can be read. */

export type Rgb = readonly [number, number, number];

export const BLACK: Rgb = [0, 0, 0];
export const WHITE: Rgb = [255, 255, 255];
/** The backgrounds of output (`--bg-sunken`), on which text has the lowest contrast. */
export const PAGE = { light: [0xf4, 0xf4, 0xf6], dark: [0x19, 0x1a, 0x1e] } as const satisfies Record<string, Rgb>;
/** The contrast that text needs. */
export const MIN_CONTRAST = 4.5;
/** How many shades are tried between a color and black or white. */
const SHADES = 16;

/** Read `1, 2, 3`; null if it is no color. */
export function rgbOf(text: string): Rgb | null {
  const [red, green, blue] = text.split(",").map((part) => Math.min(255, Math.max(0, Number.parseInt(part, 10))));
  const rgb = [red ?? Number.NaN, green ?? Number.NaN, blue ?? Number.NaN] as const;
  return rgb.some(Number.isNaN) ? null : rgb;
}

export function contrast(a: Rgb, b: Rgb): number {
  const [lighter, darker] = [luminance(a), luminance(b)].sort((first, second) => second - first);
  return ((lighter ?? 0) + 0.05) / ((darker ?? 0) + 0.05);
}

/** Return the color, darker or lighter as far as needed to be read on a background. */
export function readable(color: Rgb, background: Rgb): Rgb {
  const end = luminance(background) > 0.18 ? BLACK : WHITE;
  for (let shade = 0; shade < SHADES; shade++) {
    const mixed = shade === 0 ? color : mix(color, end, shade / SHADES);
    if (contrast(mixed, background) >= MIN_CONTRAST) return mixed;
  }
  return end;
}

function mix(from: Rgb, to: Rgb, share: number): Rgb {
  const at = (index: 0 | 1 | 2) => Math.round(from[index] + (to[index] - from[index]) * share);
  return [at(0), at(1), at(2)];
}

function luminance([red, green, blue]: Rgb): number {
  const linear = (value: number) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
}
