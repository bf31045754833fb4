/**
 * Output of a command as a terminal shows it: colors as spans, overwritten lines as they were last drawn, other control
 * sequences removed.
 */
import Anser from "anser";
import { BLACK, contrast, MIN_CONTRAST, PAGE, readable, type Rgb, rgbOf, WHITE } from "./contrast";

export interface Span {
  readonly text: string;
  /** CSS colors: a variable of the theme for the sixteen named colors, otherwise a color that can be read. */
  readonly color: string | null;
  readonly background: string | null;
  readonly bold: boolean;
  readonly dim: boolean;
  readonly italic: boolean;
  readonly underline: boolean;
  readonly strikethrough: boolean;
}

/** One of the sixteen colors that the theme has a variable for, by its name, or any other color. */
type Color = string | Rgb;
const cssOf = (color: Color) => (typeof color === "string" ? `var(--${color})` : `rgb(${color.join(", ")})`);

/** With more spans, the rest has no colors: the page has to render each span. */
const MAX_SPANS = 4_000;
const OSC = /\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?/g;
const OTHER_CSI = /\u001b\[[0-9;:?<=>!]*[ -/]*(?!m)[@-~]/g;
const SHORT_ESCAPE = /\u001b(?![[\]])[ -/]*[0-~]?/g;
const COLOR = /\u001b\[[0-9;:]*m/g;
const CONTROLS = /[\u0001-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f]/g;

export const hasControls = (text: string) => /[\u0000-\u0008\u000b-\u001f\u007f]/.test(text);

export function spansOf(text: string): Span[] {
  const rendered = renderLines(text);
  if (!rendered.includes("\u001b")) return rendered ? [plain(rendered)] : [];
  const pieces = Anser.ansiToJson(rendered, { json: true, use_classes: true, remove_empty: true });
  const spans = pieces.slice(0, MAX_SPANS).map(spanOf);
  const rest = pieces
    .slice(MAX_SPANS)
    .map((piece) => piece.content)
    .join("");
  return rest ? [...spans, plain(rest)] : spans;
}

/**
 * Return the sequences that set the colors in effect at the end of a text, to be put before the text that follows it.
 */
export function colorsAfter(text: string): string {
  const set = text.match(COLOR) ?? [];
  return set.slice(set.findLastIndex((sequence) => /^\u001b\[0*m$/.test(sequence)) + 1).join("");
}

/** Return the text without cursor movements; of a line that was overwritten, the last version. */
export function renderLines(text: string): string {
  if (!hasControls(text)) return text;
  const lines = text
    .replace(OSC, "")
    .replace(OTHER_CSI, "")
    .replace(SHORT_ESCAPE, "")
    .replace(/\r+\n/g, "\n")
    .split("\n")
    .map((line) => (line.includes("\r") ? lastVersion(line) : line));
  return lines
    .join("\n")
    .replace(/\u0000/g, "\u2400")
    .replace(CONTROLS, "");
}

function lastVersion(line: string): string {
  const versions = line.split("\r");
  const last = versions.findLastIndex((version) => version.replace(COLOR, "") !== "");
  if (last < 0) return "";
  // Colors that were set in earlier versions stay in effect.
  return (
    versions
      .slice(0, last)
      .flatMap((version) => version.match(COLOR) ?? [])
      .join("") + (versions[last] ?? "")
  );
}

function plain(text: string): Span {
  return {
    text,
    color: null,
    background: null,
    bold: false,
    dim: false,
    italic: false,
    underline: false,
    strikethrough: false,
  };
}

function spanOf(piece: Anser.AnserJsonEntry): Span {
  const has = (name: Anser.AnserJsonEntry["decorations"][number]) => piece.decorations.includes(name);
  const color = colorOf(piece.fg, piece.fg_truecolor);
  const background = colorOf(piece.bg, piece.bg_truecolor);
  return {
    text: piece.content,
    color: background === null ? onPage(color, has("dim")) : onBackground(color, background),
    background: background && cssOf(background),
    bold: has("bold"),
    dim: has("dim"),
    italic: has("italic"),
    underline: has("underline"),
    strikethrough: has("strikethrough"),
  };
}

/** Return the color of text on the page. Dim text without a color has that of captions: it can still be read. */
function onPage(color: Color | null, isDim: boolean): string | null {
  if (color === null) return isDim ? "var(--text-3)" : null;
  if (typeof color === "string") return cssOf(color);
  const [light, dark] = [readable(color, PAGE.light), readable(color, PAGE.dark)];
  return light === dark ? cssOf(color) : `light-dark(${cssOf(light)}, ${cssOf(dark)})`;
}

/**
 * Return the color of text on a background. The sixteen named colors are made to be read on the page's background, so
 * that a background in one of them takes text in the color of the page. Text that cannot be read on another background
 * is black or white.
 */
function onBackground(color: Color | null, background: Color): string {
  if (typeof background === "string") return "var(--bg-sunken)";
  if (color !== null && typeof color !== "string" && contrast(color, background) >= MIN_CONTRAST) return cssOf(color);
  return cssOf(contrast(BLACK, background) >= contrast(WHITE, background) ? BLACK : WHITE);
}

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

function colorOf(name: string | null, rgb: string | null): Color | null {
  if (!name) return null;
  if (name === "ansi-truecolor") return rgb ? rgbOf(rgb) : null;
  const number = /^ansi-palette-(\d+)$/.exec(name)?.[1];
  if (number === undefined) return name;
  return paletteColor(Number(number));
}

/** Return a color of the 256-color palette: sixteen named colors, a cube of six by six by six, and grays. */
function paletteColor(number: number): Color {
  if (number < 16) return `ansi-${number < 8 ? "" : "bright-"}${NAMES[number % 8] ?? "white"}`;
  if (number >= 232) {
    const gray = 8 + (number - 232) * 10;
    return [gray, gray, gray];
  }
  const level = (step: number) => (step === 0 ? 0 : 55 + step * 40);
  return [level(Math.floor((number - 16) / 36)), level(Math.floor((number - 16) / 6) % 6), level((number - 16) % 6)];
}
