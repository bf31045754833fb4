import { memo } from "react";
import { type TokenKind, tokensOf } from "@/views/highlight";

const COLORS: Record<TokenKind, string> = {
  keyword: "text-syn-keyword",
  string: "text-syn-string",
  number: "text-syn-number",
  comment: "text-syn-comment",
  func: "text-syn-func",
  type: "text-syn-type",
};

/** Code with colors, as spans. The code never becomes markup. */
export const Code = memo(function Code({ text, language }: { text: string; language: string | null }) {
  if (language === null) return <>{text}</>;
  return tokensOf(text, language).map((token, n) =>
    token.kind === null ? (
      token.text
    ) : (
      <span key={n} className={COLORS[token.kind]}>
        {token.text}
      </span>
    ),
  );
});
