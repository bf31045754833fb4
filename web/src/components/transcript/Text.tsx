import clsx from "clsx";
import { createContext, memo, useContext, useMemo, useState } from "react";
import { Button } from "@/components/ui/Button";
import { bytes } from "@/views/amounts";
import { coloursAfter, hasControls, type Span, spansOf } from "@/views/ansi";
import { endsOf, MOST_CHARS, tailOf } from "@/views/textLimits";

/** The search text in lower case: folded text that contains it is shown. */
export const SoughtContext = createContext("");

interface Props {
  text: string;
  bad?: boolean;
  wide?: boolean;
  /**
   * Show only this many last lines until the user expands the text: the last lines of a command's output tell how it
   * went.
   */
  last?: number | undefined;
}

/** Text as a terminal shows it. Very long text is shown by its beginning and its end until the user expands it. */
export function Text({ text, bad = false, wide = false, last }: Props) {
  const [all, setAll] = useState(false);
  const [isOpen, setIsOpen] = useState(false);
  const sought = useContext(SoughtContext);
  const folded = useMemo(() => (last === undefined ? null : tailOf(text, last)), [text, last]);
  const look = clsx(
    "font-mono text-xs leading-[18px] [overflow-wrap:anywhere] whitespace-pre-wrap",
    bad ? "text-failed" : "text-ink",
  );
  const box = clsx(!wide && "max-h-96 overflow-auto", look);
  if (folded && !isOpen && !(sought && folded.hidden.toLowerCase().includes(sought))) {
    return (
      <>
        <button
          type="button"
          aria-expanded={false}
          onClick={() => setIsOpen(true)}
          className="mb-0.5 block text-xs text-accent hover:underline"
        >
          <span aria-hidden>▸ </span>
          {folded.lines.toLocaleString("en")} earlier lines
        </button>
        <pre className={box} tabIndex={wide ? undefined : 0}>
          <Coloured text={coloursAfter(folded.hidden) + folded.tail} />
        </pre>
      </>
    );
  }
  const ends = all ? null : endsOf(text);
  if (!ends) {
    return (
      <pre className={box} tabIndex={wide ? undefined : 0}>
        <Coloured text={text} />
      </pre>
    );
  }
  return (
    <>
      <div className={box} tabIndex={wide ? undefined : 0}>
        <pre className={look}>
          <Coloured text={ends.head} />
        </pre>
        <div className="my-1 rounded bg-app-hover px-2 text-center font-sans text-ink-dull">
          {bytes(ends.between)} not shown
        </div>
        <pre className={look}>
          <Coloured text={ends.tail} />
        </pre>
      </div>
      <p className="flex flex-wrap items-center gap-2 pt-1 text-xs text-ink-dull">
        <span>Its beginning and its end: {bytes(text.length)} in all</span>
        {text.length <= MOST_CHARS ? <Button onClick={() => setAll(true)}>Show all</Button> : <Download text={text} />}
      </p>
    </>
  );
}

/** Offer text that is too long for the page as a file. */
function Download({ text }: { text: string }) {
  const save = () => {
    const address = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    const link = document.createElement("a");
    link.href = address;
    link.download = "output.txt";
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  };
  return <Button onClick={save}>Download all</Button>;
}

/** Text with the colors of a terminal, as spans. The text never becomes markup. */
export const Coloured = memo(function Coloured({ text }: { text: string }) {
  if (!hasControls(text)) return <>{text}</>;
  return spansOf(text).map((span, n) => <Coloration key={n} span={span} />);
});

function Coloration({ span }: { span: Span }) {
  if (!span.colour && !span.back && !span.bold && !span.dim && !span.italic && !span.underline && !span.struck)
    return <>{span.text}</>;
  return (
    <span
      className={clsx(
        span.bold && "font-bold",
        span.dim && "opacity-70",
        span.italic && "italic",
        span.underline && "underline",
        span.struck && "line-through",
      )}
      style={{ ...(span.colour && { color: span.colour }), ...(span.back && { backgroundColor: span.back }) }}
    >
      {span.text}
    </span>
  );
}
