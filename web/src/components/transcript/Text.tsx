import clsx from "clsx";
import { createContext, memo, useContext, useMemo } from "react";
import { Button } from "@/components/ui/Button";
import { Code } from "@/components/ui/Code";
import { Icon } from "@/components/ui/Icon";
import { formatBytes } from "@/views/amounts";
import { useRowState } from "./rowState";
import { colorsAfter, hasControls, type Span, spansOf } from "@/views/ansi";
import { endsOf, MAX_CHARS, tailOf } from "@/views/textLimits";

/** The search text in lower case: folded text that contains it is shown. */
export const SearchTextContext = createContext("");

interface Props {
  text: string;
  isError?: boolean;
  isWide?: boolean;
  /**
   * Show only this many last lines until the user expands the text: the last lines of a command's output tell how it
   * went.
   */
  lastLines?: number | undefined;
  /** The language of code; without one, the text may have the colors of a terminal. */
  language?: string | null;
}

/** Text as a terminal shows it. Very long text is shown by its beginning and its end until the user expands it. */
export function Text({ text, isError = false, isWide = false, lastLines, language = null }: Props) {
  const [isExpanded, setIsExpanded] = useRowState("expanded", false);
  const [isOpen, setIsOpen] = useRowState("open", false);
  const searchText = useContext(SearchTextContext);
  const folded = useMemo(() => (lastLines === undefined ? null : tailOf(text, lastLines)), [text, lastLines]);
  const textClass = clsx(
    "font-mono text-[11.5px] leading-[17px] [overflow-wrap:anywhere] whitespace-pre-wrap",
    isError ? "text-failed-text" : "text-text",
  );
  const boxClass = clsx(!isWide && "thin-scroll max-h-96 overflow-auto", textClass);
  if (folded && !isOpen && !(searchText && folded.hidden.toLowerCase().includes(searchText))) {
    return (
      <>
        <button
          type="button"
          aria-expanded={false}
          onClick={() => setIsOpen(() => true)}
          className="mb-0.5 flex items-center gap-1 text-12 text-text-3 hover:text-text"
        >
          <Icon name="right" className="size-3 stroke-2" />
          {folded.lines.toLocaleString("en")} earlier lines
        </button>
        <pre className={boxClass} tabIndex={isWide ? undefined : 0}>
          <ColoredText text={colorsAfter(folded.hidden) + folded.tail} />
        </pre>
      </>
    );
  }
  const ends = isExpanded ? null : endsOf(text);
  if (!ends) {
    return (
      <pre className={boxClass} tabIndex={isWide ? undefined : 0}>
        {language !== null && !hasControls(text) ? (
          <Code text={text} language={language} />
        ) : (
          <ColoredText text={text} />
        )}
      </pre>
    );
  }
  return (
    <>
      <div className={boxClass} tabIndex={isWide ? undefined : 0}>
        <pre className={textClass}>
          <ColoredText text={ends.head} />
        </pre>
        <div className="my-1 rounded bg-bg-hover px-2 text-center font-sans text-text-2">
          {formatBytes(ends.hiddenChars)} not shown
        </div>
        <pre className={textClass}>
          <ColoredText text={ends.tail} />
        </pre>
      </div>
      <p className="flex flex-wrap items-center gap-2 pt-1 text-xs text-text-2">
        <span>Beginning and end of {formatBytes(text.length)}</span>
        {text.length <= MAX_CHARS ? (
          <Button onClick={() => setIsExpanded(() => true)}>Show all</Button>
        ) : (
          <Download text={text} />
        )}
      </p>
    </>
  );
}

/** Offer text that is too long for the page as a file. */
function Download({ text }: { text: string }) {
  const save = () => {
    const url = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = "output.txt";
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  return <Button onClick={save}>Download all</Button>;
}

/** Text with the colors of a terminal, as spans. The text never becomes markup. */
export const ColoredText = memo(function ColoredText({ text }: { text: string }) {
  if (!hasControls(text)) return <>{text}</>;
  return spansOf(text).map((span, n) => <ColoredSpan key={n} span={span} />);
});

function ColoredSpan({ span }: { span: Span }) {
  if (!span.color && !span.background && !span.bold && !span.italic && !span.underline && !span.strikethrough)
    return <>{span.text}</>;
  return (
    <span
      className={clsx(
        span.bold && "font-bold",
        span.italic && "italic",
        span.underline && "underline",
        span.strikethrough && "line-through",
      )}
      style={{ ...(span.color && { color: span.color }), ...(span.background && { backgroundColor: span.background }) }}
    >
      {span.text}
    </span>
  );
}
