import { Component, lazy, type ReactNode, Suspense } from "react";
import { isPlain, isFastToParse } from "@/views/markdown";

const MarkdownBody = lazy(() => import("./MarkdownBody"));

const PLAIN_CLASS = "[overflow-wrap:anywhere] whitespace-pre-wrap";

/**
 * Text as Markdown: nothing in it is executed, and nothing is loaded from elsewhere. Until the renderer is loaded, and
 * if the text is not suitable, the text is shown as it is.
 */
export function Markdown({ text }: { text: string }) {
  const plain = <div className={PLAIN_CLASS}>{text}</div>;
  if (isPlain(text)) return <p className="[overflow-wrap:anywhere]">{text}</p>;
  // Text that is not rendered as Markdown is usually long.
  if (!isFastToParse(text))
    return (
      <div tabIndex={0} className={`max-h-[36rem] overflow-y-auto ${PLAIN_CLASS}`}>
        {text}
      </div>
    );
  return (
    <PlainOnError text={text} fallback={plain}>
      <Suspense fallback={plain}>
        <MarkdownBody text={text} />
      </Suspense>
    </PlainOnError>
  );
}

/** Show the text as it is if its Markdown is nested too deeply for the renderer. */
class PlainOnError extends Component<{ text: string; fallback: ReactNode; children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError() {
    return { failed: true };
  }

  override componentDidUpdate(before: { text: string }) {
    if (before.text !== this.props.text && this.state.failed) this.setState({ failed: false });
  }

  override render() {
    return this.state.failed ? this.props.fallback : this.props.children;
  }
}
