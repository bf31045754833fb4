import { Component, lazy, type ReactNode, Suspense } from "react";
import { isPlain, isTame } from "@/views/markdown";

const MarkdownBody = lazy(() => import("./MarkdownBody"));

const PLAIN = "[overflow-wrap:anywhere] whitespace-pre-wrap";

/**
 * A text as Markdown, with nothing of it done and nothing loaded from elsewhere. Where it cannot be read as Markdown, or
 * not yet, it is shown as it is.
 */
export function Markdown({ text }: { text: string }) {
  const plain = <div className={PLAIN}>{text}</div>;
  if (isPlain(text)) return <p className="[overflow-wrap:anywhere]">{text}</p>;
  // What is not read as Markdown is mostly long.
  if (!isTame(text))
    return (
      <div tabIndex={0} className={`max-h-[36rem] overflow-y-auto ${PLAIN}`}>
        {text}
      </div>
    );
  return (
    <AsIs of={text} instead={plain}>
      <Suspense fallback={plain}>
        <MarkdownBody text={text} />
      </Suspense>
    </AsIs>
  );
}

/** What is nested too deeply for the reader is shown as it is. */
class AsIs extends Component<{ of: string; instead: ReactNode; children: ReactNode }, { failed: boolean }> {
  override state = { failed: false };

  static getDerivedStateFromError() {
    return { failed: true };
  }

  override componentDidUpdate(before: { of: string }) {
    if (before.of !== this.props.of && this.state.failed) this.setState({ failed: false });
  }

  override render() {
    return this.state.failed ? this.props.instead : this.props.children;
  }
}
