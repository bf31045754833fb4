"""The style of the pages that the server writes itself, in the colours of the built page (`web/src/style.css`)."""

from __future__ import annotations

from typing import Final

STYLE: Final = "/login.css"
"""Open to everybody: who is not logged in gets a page, too."""

LIGHT: Final = {
    "app": "#ffffff",
    "app-side": "#f6f7f9",
    "line": "#dfe3ea",
    "ink": "#171b23",
    "ink-dull": "#4d5666",
    "accent": "#2f53cf",
    "quiet-back": "#e8ebf0",
}
DARK: Final = {
    "app": "#14171c",
    "app-side": "#191d24",
    "line": "#2d3340",
    "ink": "#e7eaf0",
    "ink-dull": "#b3bac7",
    "accent": "#8fa8ff",
    "quiet-back": "#2a303b",
}


def _tokens(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


PAGE_STYLE: Final = f"""\
:root {{ color-scheme: light dark; {_tokens(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_tokens(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--app); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }}
a {{ color: var(--accent); }}
:focus-visible {{ outline: 2px solid var(--accent); outline-offset: 2px; }}
code, pre {{ font-family: ui-monospace, monospace; font-size: .9em; }}
.brand {{ display: flex; align-items: center; height: 44px; padding: 0 12px; font-size: 14px; font-weight: 600;
  background: var(--app-side); border-bottom: 1px solid var(--line); }}
.brand a {{ color: inherit; text-decoration: none; }}
main {{ max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
.notice {{ max-width: 34rem; margin-top: 12vh; font-size: 14px; color: var(--ink-dull); }}
.notice h1 {{ margin: 0 0 .75rem; font-size: 18px; color: var(--ink); }}
.notice p {{ margin: .75rem 0; overflow-wrap: anywhere; }}
.notice code {{ padding: 1px 6px; border-radius: 4px; background: var(--quiet-back); color: var(--ink); }}
.notice pre {{ margin: .75rem 0; padding: .5rem .75rem; border: 1px solid var(--line); border-radius: 6px;
  background: var(--app-side); color: var(--ink); white-space: pre-wrap; }}
h2 {{ margin-top: 2.5rem; border-bottom: 1px solid var(--line); }}
h3 code {{ font-size: 1.05rem; }}
table {{ border-collapse: collapse; width: 100%; margin: .5rem 0 1rem; }}
th, td {{ text-align: left; vertical-align: top; padding: .3rem .6rem; border: 1px solid var(--line); }}
th {{ background: var(--quiet-back); }}
"""
