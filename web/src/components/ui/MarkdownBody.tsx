import { memo } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import gfm from "remark-gfm";
import { languageOf } from "@/views/highlight";
import { safeLink } from "@/views/markdown";
import { Code } from "./Code";
import "./markdown.css";

const PLUGINS = [gfm];

/** Nothing in Markdown is loaded: images become links, and links are limited to safe schemes. */
const COMPONENTS: Components = {
  // The page has its own first headings, so those of a text are lower.
  h1: "h3",
  h2: "h4",
  h3: "h5",
  h4: "h6",
  h5: "h6",
  a: ({ href, children }) => <Link address={href}>{children}</Link>,
  img: ({ src, alt }) => <Link address={src}>{alt || src || "picture"}</Link>,
  table: ({ children }) => (
    <div className="markdown-table" tabIndex={0} role="group" aria-label="Table">
      <table>{children}</table>
    </div>
  ),
  pre: ({ children }) => <pre tabIndex={0}>{children}</pre>,
  code: ({ className, children }) => {
    const language = languageOf(/language-(\S+)/.exec(className ?? "")?.[1]);
    return (
      <code>
        {language !== null && typeof children === "string" ? <Code text={children} language={language} /> : children}
      </code>
    );
  },
};

function Link({ address, children }: { address: string | undefined; children: React.ReactNode }) {
  const href = safeLink(address);
  if (href === undefined) return <>{children}</>;
  return (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow" title={href}>
      {children}
    </a>
  );
}

/** Loaded with the first text that needs it: the Markdown parser is larger than the rest of the page. */
export default memo(function MarkdownBody({ text }: { text: string }) {
  return (
    <div className="markdown">
      <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS} urlTransform={(address) => address}>
        {text}
      </ReactMarkdown>
    </div>
  );
});
