import { messageParts } from "@/views/plugins";

/** A message with its commands as code. */
export function Message({ text }: { text: string }) {
  return messageParts(text).map((part, index) =>
    part.isCode ? (
      <code key={index} className="font-mono text-[.92em] leading-none">
        {part.text}
      </code>
    ) : (
      <span key={index}>{part.text}</span>
    ),
  );
}
