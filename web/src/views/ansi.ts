/**
 * Output of a command as a terminal shows it: colors as spans, overwritten lines as they were last drawn, other control
 * sequences removed.
 */
import Anser from "anser";

export interface Span {
  readonly text: string;
  /** CSS colors: a variable of the theme for the sixteen named colors, otherwise the color itself. */
  readonly color: string | null;
  readonly background: string | null;
  readonly bold: boolean;
  readonly dim: boolean;
  readonly italic: boolean;
  readonly underline: boolean;
  readonly strikethrough: boolean;
}

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
  const background = colorOf(piece.bg, piece.bg_truecolor);
  return {
    text: piece.content,
    ...(background === null
      ? { color: colorOf(piece.fg, piece.fg_truecolor), background }
      : onBackground(piece, background)),
    bold: has("bold"),
    dim: has("dim"),
    italic: has("italic"),
    underline: has("underline"),
    strikethrough: has("strikethrough"),
  };
}

/**
 * Colors of text on a background. The sixteen named colors are made to be read on the page's background, so that a
 * background in one of them takes text in the color of the page.
 */
function onBackground(piece: Anser.AnserJsonEntry, background: string): Pick<Span, "color" | "background"> {
  const isNamed = background.startsWith("var(");
  return { color: isNamed ? "var(--bg-sunken)" : colorOf(piece.fg, piece.fg_truecolor), background };
}

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

function colorOf(name: string | null, rgb: string | null): string | null {
  if (!name) return null;
  if (name === "ansi-truecolor") return rgb ? `rgb(${rgb})` : null;
  const number = /^ansi-palette-(\d+)$/.exec(name)?.[1];
  if (number === undefined) return `var(--${name})`;
  return paletteColor(Number(number));
}

/** Return a color of the 256-color palette: sixteen named colors, a cube of six by six by six, and grays. */
function paletteColor(number: number): string {
  if (number < 16) return `var(--ansi-${number < 8 ? "" : "bright-"}${NAMES[number % 8] ?? "white"})`;
  if (number >= 232) {
    const gray = 8 + (number - 232) * 10;
    return `rgb(${gray}, ${gray}, ${gray})`;
  }
  const level = (step: number) => (step === 0 ? 0 : 55 + step * 40);
  const [red, green, blue] = [Math.floor((number - 16) / 36), Math.floor((number - 16) / 6) % 6, (number - 16) % 6];
  return `rgb(${level(red)}, ${level(green)}, ${level(blue)})`;
}
