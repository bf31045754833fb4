import { Component, lazy, type ReactNode, Suspense } from "react";
import { isPlain, isTame } from "@/views/markdown";

const MarkdownBody = lazy(() => import("./MarkdownBody"));

const PLAIN = "[overflow-wrap:anywhere] whitespace-pre-wrap";

/**
 * Text as Markdown: nothing in it is executed, and nothing is loaded from elsewhere. Until the renderer is loaded, and
 * where the text is not suitable, the text is shown as it is.
 */
export function Markdown({ text }: { text: string }) {
  const plain = <div className={PLAIN}>{text}</div>;
  if (isPlain(text)) return <p className="[overflow-wrap:anywhere]">{text}</p>;
  // Text that is not rendered as Markdown is usually long.
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

/** Show the text as it is where its Markdown is nested too deeply for the renderer. */
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
