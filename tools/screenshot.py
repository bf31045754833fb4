"""Render docs/images/show.svg: the terminal output of real commands about a small run."""

import os
import re
import subprocess
import tempfile
from html import escape
from pathlib import Path

from tools.docs_source import ROOT

IMAGE = ROOT / "docs" / "images" / "show.svg"
DEMO = ROOT / "tools" / "screenshot_demo.py"
BIN = ROOT / ".venv" / "bin"

FONT_SIZE, CHAR_WIDTH, LINE_HEIGHT, MARGIN = 14, 8.43, 20, 20
INK, PAPER, PROMPT = "#d8dee9", "#161b22", "#7d8590"
LOOKS = {
    "1": "font-weight:bold",
    "2": f"fill:{PROMPT}",
    "3": "font-style:italic",
    "31": "fill:#ff7b72",
    "32": "fill:#7ee787",
    "33": "fill:#e3b341",
    "36": "fill:#79c0ff",
}
TESTS = """\
import unittest

class Prices(unittest.TestCase):
    def test_a_price_is_rounded_down(self):
        self.assertEqual(round(2.4), 2)

    def test_a_price_is_never_negative(self):
        self.assertGreaterEqual(max(0, -3), 0)
"""
COMMAND = "python3 -m unittest -v 2>&1; test -f CHANGELOG.md || { echo 'no changelog' >&2; exit 1; }"


def record_and_show() -> str:
    """Return the text of the terminal, including prompts."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "SHOPFLOOR_STORAGE": f"{folder}/storage", "PATH": f"{BIN}:{os.environ['PATH']}"}
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        project = Path(folder) / "app"
        project.mkdir()
        (project / "test_prices.py").write_text(TESTS, encoding="utf-8")

        def terminal(*arguments: str) -> str:
            return subprocess.run(arguments, cwd=project, env=env, capture_output=True, text=True, check=False).stdout

        terminal("shopfloor", "run", "--command", COMMAND)
        show_output = terminal("shopfloor", "show", "last", "--color", "always")
        (project / "release.py").write_text(DEMO.read_text(encoding="utf-8"), encoding="utf-8")
        terminal("python", "release.py")
        tree_output = terminal("shopfloor", "tree", "last", "--color", "always")
    return f"$ shopfloor show last\n{show_output}\n$ python release.py && shopfloor tree last\n{tree_output}"


def svg(text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    width = max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in lines) * CHAR_WIDTH + 2 * MARGIN
    height = len(lines) * LINE_HEIGHT + 2 * MARGIN
    rows = "\n".join(_row(line, MARGIN + LINE_HEIGHT * number + FONT_SIZE) for number, line in enumerate(lines))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" height="{height}">
<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>
<g font-family="ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace" font-size="{FONT_SIZE}" fill="{INK}">
{rows}
</g>
</svg>
"""


def _row(line: str, y: int) -> str:
    """Render one line. Each styled part has an explicit column, so that the width of the font does not matter."""
    spans: list[str] = []
    look, column = "", 0
    for codes, text_part in re.findall(r"(?:\x1b\[([\d;]*)m)?([^\x1b]*)", line):
        if codes:
            look = ";".join(LOOKS[code] for code in codes.split(";") if code in LOOKS)
        if text_part:
            style = f' style="{look}"' if look else ""
            spans.append(f'<tspan x="{MARGIN + column * CHAR_WIDTH:.1f}"{style}>{escape(text_part)}</tspan>')
            column += len(text_part)
    return f'<text y="{y}" xml:space="preserve">{"".join(spans)}</text>'


def main() -> int:
    IMAGE.parent.mkdir(parents=True, exist_ok=True)
    IMAGE.write_text(svg(record_and_show()), encoding="utf-8")
    print(f"{IMAGE.relative_to(ROOT)} is updated")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
