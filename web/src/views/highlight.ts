/**
 * Colors for code: a small lexer for the languages that agents write most. It looks at words, strings, comments and
 * numbers only, so that it is fast, works on parts of a file such as a diff, and never fails.
 */
export type TokenKind = "keyword" | "string" | "number" | "comment" | "func" | "type";

export interface Token {
  readonly text: string;
  readonly kind: TokenKind | null;
}

interface Language {
  readonly keywords: ReadonlySet<string>;
  readonly comment: string;
  readonly strings: string;
  /** Whether keywords are found in any case. */
  readonly ignoresCase?: boolean;
}

const words = (text: string) => new Set(text.split(" "));
const HASH = "#[^\\n]*";
const SPACED_HASH = "(?<=^|\\s)#[^\\n]*";
const BLOCK = "\\/\\*[\\s\\S]*?(?:\\*\\/|$)";
const SLASHES = `\\/\\/[^\\n]*|${BLOCK}`;
const QUOTED = `"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?`;
const BACKTICKS = "`(?:\\\\.|[^`\\\\])*`?";
const TRIPLE = `"""[\\s\\S]*?(?:"""|$)|'''[\\s\\S]*?(?:'''|$)`;

const C_WORDS =
  "if else for while do switch case default break continue return struct class enum union const static void int long short char float double bool unsigned signed public private protected virtual new delete this try catch throw namespace using template typename sizeof typedef include define true false null nullptr auto final override abstract interface extends implements package import var let fun val when is in as internal sealed data object async await readonly ref out string foreach";

const LANGUAGES: Record<string, Language> = {
  python: {
    keywords: words(
      "and as assert async await break case class continue def del elif else except finally for from global if import in is lambda match nonlocal not or pass raise return try type while with yield None True False self cls",
    ),
    comment: HASH,
    strings: `[rbfuRBFU]{0,2}(?:${TRIPLE}|${QUOTED})`,
  },
  javascript: {
    keywords: words(
      "abstract as async await break case catch class const continue debugger declare default delete do else enum export extends false finally for from function get if implements import in instanceof interface keyof let namespace new null of private protected public readonly return satisfies set static super switch this throw true try type typeof undefined var void while with yield",
    ),
    comment: SLASHES,
    strings: `${QUOTED}|${BACKTICKS}`,
  },
  c: { keywords: words(C_WORDS), comment: SLASHES, strings: QUOTED },
  go: {
    keywords: words(
      "break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var nil true false iota",
    ),
    comment: SLASHES,
    strings: `${QUOTED}|${BACKTICKS}`,
  },
  rust: {
    keywords: words(
      "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
    ),
    comment: SLASHES,
    strings: `"(?:\\\\.|[^"\\\\])*"?|'(?:\\\\.|[^'\\\\\\n])'`,
  },
  ruby: {
    keywords: words(
      "alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require attr_accessor",
    ),
    comment: HASH,
    strings: QUOTED,
  },
  shell: {
    keywords: words(
      "if then else elif fi for while until do done case esac in function return local export set unset exit source readonly shift trap echo cd",
    ),
    comment: SPACED_HASH,
    strings: `"(?:\\\\.|[^"\\\\])*"?|'[^']*'?`,
  },
  sql: {
    keywords: words(
      "select from where insert into values update set delete create table index unique drop alter add column primary key foreign references not null default and or in is as on join left right inner outer full group by order having limit offset union all distinct case when then else end begin commit rollback with exists between like view trigger if concurrently constraint check cascade bigint integer text boolean timestamp",
    ),
    comment: `--[^\\n]*|${BLOCK}`,
    strings: "'(?:''|[^'])*'?",
    ignoresCase: true,
  },
  yaml: { keywords: words("true false null yes no on off"), comment: SPACED_HASH, strings: QUOTED },
  css: { keywords: words("important media supports import layer theme"), comment: BLOCK, strings: QUOTED },
  html: { keywords: words(""), comment: "<!--[\\s\\S]*?(?:-->|$)", strings: QUOTED },
};

const named = (language: string, names: string) =>
  Object.fromEntries(names.split(" ").map((name) => [name, language] as const));

/** The languages by file extension and by the name after the fence of a code block. */
const NAMES: Readonly<Partial<Record<string, string>>> = {
  ...named("python", "py pyi python python3 pyw"),
  ...named("javascript", "js jsx ts tsx mjs cjs mts cts javascript typescript json jsonc json5 vue svelte"),
  ...named("c", "c h cc cpp cxx hpp cs java kt kts swift scala php dart m mm proto c++ csharp kotlin zig"),
  ...named("go", "go golang"),
  ...named("rust", "rs rust"),
  ...named("ruby", "rb ruby rake gemspec"),
  ...named("shell", "sh bash zsh fish shell console shellsession dockerfile makefile mk"),
  ...named("sql", "sql psql postgres sqlite"),
  ...named("yaml", "yaml yml toml ini cfg conf env properties"),
  ...named("css", "css scss less"),
  ...named("html", "html htm xml svg"),
};

/** Return the language of a code block or of a file; null if it is unknown. */
export function languageOf(name: string | null | undefined): string | null {
  const file = (name ?? "").split(/[\\/]/).at(-1)?.toLowerCase() ?? "";
  return NAMES[file] ?? NAMES[file.split(".").at(-1) ?? ""] ?? null;
}

/** Longer code has no colors: the page has to render each token. */
const MAX_CHARS = 60_000;
const lexers = new Map<string, RegExp>();

/** Split code into tokens. Their texts together are the code. */
export function tokensOf(code: string, languageName: string | null): readonly Token[] {
  const language = languageName === null ? undefined : LANGUAGES[languageName];
  if (!language || languageName === null || code.length > MAX_CHARS) return [{ text: code, kind: null }];
  let lexer = lexers.get(languageName);
  if (!lexer) {
    const pattern = `(${language.comment})|(${language.strings})|(\\b\\d[\\w.]*)|([A-Za-z_$][\\w$]*)`;
    lexers.set(languageName, (lexer = new RegExp(pattern, "gm")));
  }
  const tokens: Token[] = [];
  let from = 0;
  for (const found of code.matchAll(lexer)) {
    const kind = kindOf(found, code, language);
    if (kind === null || found[0] === "") continue;
    if (found.index > from) tokens.push({ text: code.slice(from, found.index), kind: null });
    tokens.push({ text: found[0], kind });
    from = found.index + found[0].length;
  }
  if (from < code.length) tokens.push({ text: code.slice(from), kind: null });
  return tokens;
}

function kindOf(found: RegExpExecArray, code: string, language: Language): TokenKind | null {
  const [, comment, string, number, word] = found;
  if (comment !== undefined) return "comment";
  if (string !== undefined) return "string";
  if (number !== undefined) return "number";
  if (word === undefined) return null;
  if (language.keywords.has(language.ignoresCase ? word.toLowerCase() : word)) return "keyword";
  if (code.charAt(found.index + word.length) === "(") return "func";
  return /^[A-Z][A-Za-z\d]*[a-z]/.test(word) ? "type" : null;
}
