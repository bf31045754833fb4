import { memo } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import gfm from "remark-gfm";
import { safeLink } from "@/views/markdown";
import "./markdown.css";

const PLUGINS = [gfm];

/** Nothing that Markdown can name is loaded: pictures are links, and links lead only to where people expect. */
const COMPONENTS: Components = {
  // The page has its own first headings: those of a text are below them.
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

/** Loaded when the first text is shown: what reads Markdown is larger than the rest of the page. */
export default memo(function MarkdownBody({ text }: { text: string }) {
  return (
    <div className="markdown">
      <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS} urlTransform={(address) => address}>
        {text}
      </ReactMarkdown>
    </div>
  );
});
