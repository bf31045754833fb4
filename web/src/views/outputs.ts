/** The output of a tool as it is shown: texts, images, and JSON for everything else. */
import type { EventOf } from "@/api";
import { asText, isRecord, isText, parsed } from "./json";

export type Shown =
  | { readonly type: "text"; readonly text: string; readonly label?: string; readonly bad?: boolean }
  | { readonly type: "image"; readonly src: string; readonly bytes: number };

/** Only image types that cannot contain a document, as SVG can. */
const PICTURE = /^image\/(png|jpeg|gif|webp)$/;
const BASE64 = /^[A-Za-z0-9+/=\s]+$/;
const DATA_URL = /^data:(image\/[a-z]+);base64,(.*)$/s;
const PICTURE_CHARS = 8_000_000;
const PICTURES_MOST = 20;

/** Return the parts of a result in order. An error is shown once, though many tools report it twice. */
export function outputsOf(result: EventOf<"tool.result">["payload"]): Shown[] {
  const shown = partsOf(result.output).filter((part) => part.type !== "text" || part.text !== "");
  const error = result.error;
  if (error == null) return shown;
  const first = shown[0];
  if (shown.length === 1 && first?.type === "text" && error.includes(first.text.trim())) {
    // The error repeats the output, perhaps with a prefix; the output has the original line breaks.
    const before = error.slice(0, error.indexOf(first.text.trim())).trim();
    return [...(before ? [{ type: "text", text: before, bad: true } as const] : []), { ...first, bad: true }];
  }
  return [{ type: "text", text: error, bad: true }, ...shown];
}

export function partsOf(output: unknown): Shown[] {
  if (output === null || output === undefined) return [];
  if (isText(output)) {
    const value = parsed(output);
    return value === undefined ? [{ type: "text", text: output }] : partsOf(value);
  }
  if (Array.isArray(output)) return output.length && output.every(isContent) ? contents(output) : json(output);
  if (!isRecord(output)) return json(output);
  const content = output["content"];
  // The form of MCP: content items, often repeated as a structure.
  if (Array.isArray(content) && content.length && content.every(isContent)) return contents(content);
  if (isText(output["stdout"]) || isText(output["stderr"])) return streams(output);
  return pictureOf(output) ? contents([output]) : json(output);
}

function streams(output: Record<string, unknown>): Shown[] {
  const { stdout, stderr, ...rest } = output;
  const others = Object.entries(rest).filter(([name, value]) => value !== null && value !== "" && name !== "exit_code");
  return [
    { type: "text", text: isText(stdout) ? stdout : asText(stdout) },
    ...(isText(stderr) && stderr ? [{ type: "text", text: stderr, label: "stderr", bad: true } as const] : []),
    ...(others.length ? json(Object.fromEntries(others)) : []),
  ];
}

function contents(items: readonly unknown[]): Shown[] {
  const shown: Shown[] = [];
  for (const item of items) {
    const picture = pictureOf(item);
    if (picture) {
      if (shown.filter((one) => one.type === "image").length < PICTURES_MOST) shown.push(picture);
    } else if (isRecord(item) && isText(item["text"])) {
      const value = parsed(item["text"]);
      shown.push({ type: "text", text: value === undefined ? item["text"] : asText(value) });
    } else shown.push(...json(item));
  }
  return shown;
}

const json = (value: unknown): Shown[] => [{ type: "text", text: asText(value) }];

function isContent(item: unknown): boolean {
  return (
    (isRecord(item) && isText(item["text"]) && (item["type"] === undefined || isText(item["type"]))) ||
    pictureOf(item) !== null
  );
}

/** Return an image in the output of a tool, in the forms of Anthropic, MCP, OpenAI and Gemini. */
export function pictureOf(item: unknown): Extract<Shown, { type: "image" }> | null {
  if (!isRecord(item)) return null;
  const inside = [item["source"], item["inlineData"], item["inline_data"], item["file"]].find(isRecord) ?? item;
  const url = isRecord(item["image_url"]) ? item["image_url"]["url"] : (item["image_url"] ?? inside["url"]);
  const [, named, coded] = (isText(url) && url.length < PICTURE_CHARS && DATA_URL.exec(url)) || [];
  const media = named ?? inside["media_type"] ?? inside["mimeType"] ?? inside["mime_type"] ?? inside["type"];
  const data = coded ?? inside["data"] ?? inside["base64"];
  if (!isText(media) || !isText(data) || !PICTURE.test(media)) return null;
  if (data.length > PICTURE_CHARS || !BASE64.test(data)) return null;
  return {
    type: "image",
    src: `data:${media};base64,${data.replace(/\s/g, "")}`,
    bytes: Math.floor(data.length * 0.75),
  };
}
