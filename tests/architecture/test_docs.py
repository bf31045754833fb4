"""What the pages tell a reader to type works, and their links lead somewhere."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest

import shopfloor.ports

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
WRITTEN_BY_HAND = [page for page in PAGES if ROOT / "docs" / "reference" not in page.parents]

_FENCE = re.compile(r"^(?P<fence>```+)(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=fence)$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


_PARTS_OF_PORTS = {"Changes", "Child", "Log", "LogCopy", "Normaliser", "RunsSubscription", "Subscription", "Works"}


class Block(NamedTuple):
    line: int
    text: str


def blocks(text: str, language: str) -> Iterator[Block]:
    """The code of a page that is in this language, with the line where it begins."""
    for match in _FENCE.finditer(text):
        if match["language"] == language:
            yield Block(text.count("\n", 0, match.start("text")) + 1, match["text"])


_FILE = re.compile(r"^```\w+ file=(?P<name>\S+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


def files_of(page: Path) -> dict[str, str]:
    """The files that a page shows, by the name that it gives them (`file=…` beside the language)."""
    return {match["name"]: match["text"] for match in _FILE.finditer(page.read_text(encoding="utf-8"))}


def links(text: str) -> Iterator[str]:
    """Where a page leads, but for the web."""
    for match in _LINK.finditer(_FENCE.sub("", text)):
        if not re.match(r"[a-z]+:", match["target"]):
            yield match["target"]


def anchors(text: str) -> set[str]:
    """The addresses of a page's headings, as hosts of Markdown make them."""
    titles = (match["title"].lower() for match in _HEADING.finditer(_FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(
    "page", [page for page in WRITTEN_BY_HAND if "```sh\n" in page.read_text(encoding="utf-8")], ids=_id
)
def test_what_a_page_tells_to_type_works(page: Path, tmp_path: Path) -> None:
    """The blocks of a page follow one another in one folder, as they would for a reader."""
    home = tmp_path / "home"
    home.mkdir()
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SHOPFLOOR_STORAGE": str(tmp_path / "storage"),
        "HOME": str(home),
    }
    for block in blocks(page.read_text(encoding="utf-8"), "sh"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=home,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said = f"{_id(page)}:{block.line} exits with {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert done.returncode == 0, said


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [target for target in links(text) if not _leads_somewhere(page, target)] == []


def _leads_somewhere(page: Path, target: str) -> bool:
    name, _, anchor = unquote(target).partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return False
    return not anchor or anchor in anchors(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=_id)
def test_code_on_a_page_says_its_language(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [match["text"] for match in _FENCE.finditer(text) if not match["language"]] == []


def test_every_test_that_the_security_page_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", (ROOT / "docs" / "security.md").read_text(encoding="utf-8"))
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_page_on_adapters_names_every_port_and_suites_that_are_there() -> None:
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    suites = set(re.findall(r"`(test_\w+\.py)`", page))
    assert suites <= {path.name for path in (ROOT / "tests" / "contract").iterdir()}
    ports = {
        name
        for name, port in vars(shopfloor.ports).items()
        # A port stands by itself; what a port hands out, as a log or a subscription, belongs to it.
        if getattr(port, "_is_protocol", False) and name not in _PARTS_OF_PORTS
    }
    assert ports - set(re.findall(r"`(\w+)`", page)) == set()


def test_blocks_are_found_by_their_language_and_line() -> None:
    page = "a\n```sh\necho 1\n```\nb\n```console\n$ no\n```\n```sh\necho 2\necho 3\n```\n"
    assert list(blocks(page, "sh")) == [Block(3, "echo 1\n"), Block(10, "echo 2\necho 3\n")]


def test_links_in_code_and_to_the_web_are_passed_over() -> None:
    page = "[a](x.md) ![b](y.svg#z) [c](https://example.org)\n```sh\n[d](no.md)\n```\n[e](#top)\n"
    assert list(links(page)) == ["x.md", "y.svg#z", "#top"]


def test_anchors_are_made_as_hosts_of_markdown_make_them() -> None:
    assert anchors("# One, two\n## `run.started`\n### A_b-c\n") == {"one-two", "runstarted", "a_b-c"}


def test_the_way_of_a_run_names_what_is_there_in_at_most_forty_hops() -> None:
    section = (
        (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8").split("## The way of a run")[1].split("\n## ")[0]
    )
    hops = re.findall(r"^\| (\d+) \| `([\w.]+)` \| `([\w./]+)` \|", section, re.MULTILINE)
    assert [int(number) for number, _, _ in hops] == list(range(1, len(hops) + 1))
    assert 30 < len(hops) <= 40
    for _, name, file in hops:
        path = ROOT / (file if file.startswith("web/") else f"src/shopfloor/{file}")
        for part in name.split("."):
            assert re.search(rf"\b(class|def|function|const) {part}\b", path.read_text(encoding="utf-8")), (name, file)
