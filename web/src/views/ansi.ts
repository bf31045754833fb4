/**
 * Output of a command as a terminal shows it: colors as spans, overwritten lines as they were last drawn, other control
 * sequences removed.
 */
import Anser from "anser";

export interface Span {
  readonly text: string;
  /** CSS colors: a variable of the theme for the sixteen named colors, otherwise the color itself. */
  readonly colour: string | null;
  readonly back: string | null;
  readonly bold: boolean;
  readonly dim: boolean;
  readonly italic: boolean;
  readonly underline: boolean;
  readonly struck: boolean;
}

/** With more spans, the rest has no colors: the page has to render each span. */
const SPANS_MOST = 4_000;
const OSC = /\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?/g;
const NOT_COLOUR = /\u001b\[[0-9;:?<=>!]*[ -/]*(?!m)[@-~]/g;
const SHORT = /\u001b(?![[\]])[ -/]*[0-~]?/g;
const COLOUR = /\u001b\[[0-9;:]*m/g;
const CONTROLS = /[\u0001-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f]/g;

export const hasControls = (text: string) => /[\u0000-\u0008\u000b-\u001f\u007f]/.test(text);

export function spansOf(text: string): Span[] {
  const drawnText = drawn(text);
  if (!drawnText.includes("\u001b")) return drawnText ? [plain(drawnText)] : [];
  const pieces = Anser.ansiToJson(drawnText, { json: true, use_classes: true, remove_empty: true });
  const spans = pieces.slice(0, SPANS_MOST).map(spanOf);
  const rest = pieces
    .slice(SPANS_MOST)
    .map((piece) => piece.content)
    .join("");
  return rest ? [...spans, plain(rest)] : spans;
}

/**
 * Return the sequences that set the colors in effect at the end of a text, to be put before the text that follows it.
 */
export function coloursAfter(text: string): string {
  const set = text.match(COLOUR) ?? [];
  return set.slice(set.findLastIndex((one) => /^\u001b\[0*m$/.test(one)) + 1).join("");
}

/** Return the text without cursor movements; of a line that was overwritten, the last version. */
export function drawn(text: string): string {
  if (!hasControls(text)) return text;
  const lines = text
    .replace(OSC, "")
    .replace(NOT_COLOUR, "")
    .replace(SHORT, "")
    .replace(/\r+\n/g, "\n")
    .split("\n")
    .map((line) => (line.includes("\r") ? lastDrawn(line) : line));
  return lines
    .join("\n")
    .replace(/\u0000/g, "\u2400")
    .replace(CONTROLS, "");
}

function lastDrawn(line: string): string {
  const draws = line.split("\r");
  const last = draws.findLastIndex((draw) => draw.replace(COLOUR, "") !== "");
  if (last < 0) return "";
  // Colors that were set in earlier versions stay in effect.
  return (
    draws
      .slice(0, last)
      .flatMap((draw) => draw.match(COLOUR) ?? [])
      .join("") + (draws[last] ?? "")
  );
}

function plain(text: string): Span {
  return { text, colour: null, back: null, bold: false, dim: false, italic: false, underline: false, struck: false };
}

function spanOf(piece: Anser.AnserJsonEntry): Span {
  const has = (name: Anser.AnserJsonEntry["decorations"][number]) => piece.decorations.includes(name);
  return {
    text: piece.content,
    colour: colourOf(piece.fg, piece.fg_truecolor),
    back: colourOf(piece.bg, piece.bg_truecolor),
    bold: has("bold"),
    dim: has("dim"),
    italic: has("italic"),
    underline: has("underline"),
    struck: has("strikethrough"),
  };
}

const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

function colourOf(name: string | null, exactly: string | null): string | null {
  if (!name) return null;
  if (name === "ansi-truecolor") return exactly ? `rgb(${exactly})` : null;
  const number = /^ansi-palette-(\d+)$/.exec(name)?.[1];
  if (number === undefined) return `var(--${name})`;
  return paletteColour(Number(number));
}

/** Return a color of the 256-color palette: sixteen named colors, a cube of six by six by six, and grays. */
function paletteColour(number: number): string {
  if (number < 16) return `var(--ansi-${number < 8 ? "" : "bright-"}${NAMES[number % 8] ?? "white"})`;
  if (number >= 232) {
    const grey = 8 + (number - 232) * 10;
    return `rgb(${grey}, ${grey}, ${grey})`;
  }
  const level = (step: number) => (step === 0 ? 0 : 55 + step * 40);
  const [red, green, blue] = [Math.floor((number - 16) / 36), Math.floor((number - 16) / 6) % 6, (number - 16) % 6];
  return `rgb(${level(red)}, ${level(green)}, ${level(blue)})`;
}
