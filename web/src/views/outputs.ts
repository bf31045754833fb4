/** The output of a tool as it is shown: texts, images, and JSON for everything else. */
import type { EventOf } from "@/api";
import { asText, isRecord, isText, parseJson } from "./json";

export type OutputPart =
  | { readonly type: "text"; readonly text: string; readonly label?: string; readonly isError?: boolean }
  | { readonly type: "image"; readonly src: string; readonly bytes: number };

/** Only image types that cannot contain a document, as SVG can. */
const IMAGE_TYPE = /^image\/(png|jpeg|gif|webp)$/;
const BASE64 = /^[A-Za-z0-9+/=\s]+$/;
const DATA_URL = /^data:(image\/[a-z]+);base64,(.*)$/s;
const MAX_IMAGE_CHARS = 8_000_000;
const MAX_IMAGES = 20;

/** Return the parts of a result in order. An error is shown once, though many tools report it twice. */
export function outputsOf(result: EventOf<"tool.result">["payload"]): OutputPart[] {
  const parts = partsOf(result.output).filter((part) => part.type !== "text" || part.text !== "");
  const error = result.error;
  if (error == null) return parts;
  const first = parts[0];
  if (parts.length === 1 && first?.type === "text" && error.includes(first.text.trim())) {
    // The error repeats the output, perhaps with a prefix; the output has the original line breaks.
    const prefix = error.slice(0, error.indexOf(first.text.trim())).trim();
    return [...(prefix ? [{ type: "text", text: prefix, isError: true } as const] : []), { ...first, isError: true }];
  }
  return [{ type: "text", text: error, isError: true }, ...parts];
}

export function partsOf(output: unknown): OutputPart[] {
  if (output === null || output === undefined) return [];
  if (isText(output)) {
    const value = parseJson(output);
    return value === undefined ? [{ type: "text", text: output }] : partsOf(value);
  }
  if (Array.isArray(output)) return output.length && output.every(isContent) ? contentParts(output) : jsonParts(output);
  if (!isRecord(output)) return jsonParts(output);
  const content = output["content"];
  // The form of MCP: content items, often repeated as a structure.
  if (Array.isArray(content) && content.length && content.every(isContent)) return contentParts(content);
  if (isText(output["stdout"]) || isText(output["stderr"])) return streamParts(output);
  return imageOf(output) ? contentParts([output]) : jsonParts(output);
}

function streamParts(output: Record<string, unknown>): OutputPart[] {
  const { stdout, stderr, ...rest } = output;
  const others = Object.entries(rest).filter(([name, value]) => value !== null && value !== "" && name !== "exit_code");
  return [
    { type: "text", text: isText(stdout) ? stdout : asText(stdout) },
    ...(isText(stderr) && stderr ? [{ type: "text", text: stderr, label: "stderr", isError: true } as const] : []),
    ...(others.length ? jsonParts(Object.fromEntries(others)) : []),
  ];
}

function contentParts(items: readonly unknown[]): OutputPart[] {
  const parts: OutputPart[] = [];
  for (const item of items) {
    const image = imageOf(item);
    if (image) {
      if (parts.filter((part) => part.type === "image").length < MAX_IMAGES) parts.push(image);
    } else if (isRecord(item) && isText(item["text"])) {
      const value = parseJson(item["text"]);
      parts.push({ type: "text", text: value === undefined ? item["text"] : asText(value) });
    } else parts.push(...jsonParts(item));
  }
  return parts;
}

const jsonParts = (value: unknown): OutputPart[] => [{ type: "text", text: asText(value) }];

function isContent(item: unknown): boolean {
  return (
    (isRecord(item) && isText(item["text"]) && (item["type"] === undefined || isText(item["type"]))) ||
    imageOf(item) !== null
  );
}

/** Return an image in the output of a tool, in the forms of Anthropic, MCP, OpenAI and Gemini. */
export function imageOf(item: unknown): Extract<OutputPart, { type: "image" }> | null {
  if (!isRecord(item)) return null;
  const source = [item["source"], item["inlineData"], item["inline_data"], item["file"]].find(isRecord) ?? item;
  const url = isRecord(item["image_url"]) ? item["image_url"]["url"] : (item["image_url"] ?? source["url"]);
  const [, dataUrlType, dataUrlData] = (isText(url) && url.length < MAX_IMAGE_CHARS && DATA_URL.exec(url)) || [];
  const media = dataUrlType ?? source["media_type"] ?? source["mimeType"] ?? source["mime_type"] ?? source["type"];
  const data = dataUrlData ?? source["data"] ?? source["base64"];
  if (!isText(media) || !isText(data) || !IMAGE_TYPE.test(media)) return null;
  if (data.length > MAX_IMAGE_CHARS || !BASE64.test(data)) return null;
  return {
    type: "image",
    src: `data:${media};base64,${data.replace(/\s/g, "")}`,
    bytes: Math.floor(data.length * 0.75),
  };
}
