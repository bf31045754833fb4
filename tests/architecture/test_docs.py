"""The documentation: its commands work, its links have targets, and the site lists every page."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pytest
import yaml
from tools.docs_blocks import example_workers

import shopfloor.ports
import shopfloor.testing
from shopfloor.cli.main import COMMANDS, find_command

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
WRITTEN_BY_HAND = [page for page in PAGES if DOCS / "reference" not in page.parents]

_FENCE = re.compile(
    r"^(?P<fence>```+)(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^(?P=fence)$",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ (?P<title>.+)$", re.MULTILINE)


_PARTS_OF_PORTS = {
    "RowChanges",
    "Child",
    "FleetSubscription",
    "Log",
    "LogCopy",
    "Normalizer",
    "RunsSubscription",
    "Subscription",
    "RunService",
}


class Block(NamedTuple):
    line: int
    language: str
    title: str | None
    text: str


def all_blocks(text: str) -> Iterator[Block]:
    """Yield the code blocks of a page in order, each with the line where its code starts."""
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("text")) + 1
        yield Block(line, match["language"], match["title"], match["text"])


def blocks(text: str, language: str) -> Iterator[Block]:
    """Yield the code blocks of a page in one language."""
    return (block for block in all_blocks(text) if block.language == language)


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page shows, by the path in `title="…"`."""
    return {block.title: block.text for block in all_blocks(_read(page)) if block.title}


def links(text: str) -> Iterator[str]:
    """Yield the targets of a page's links, without links to the web."""
    for match in _LINK.finditer(_FENCE.sub("", text)):
        if not re.match(r"[a-z]+:", match["target"]):
            yield match["target"]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as Git hosts and our site generate them."""
    titles = (match["title"].lower() for match in _HEADING.finditer(_FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


def commands_of(block: Block) -> list[str]:
    """Return the commands of a `console` block: lines that start with `$ `, with continuations, without comments."""
    text = re.sub(r"\\\n\s*", "", block.text)
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


def _read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


# Commands on pages

_KEEP_VARIABLES = 'set -a; [ ! -f "$STATE" ] || . "$STATE"\n{code}\nexport -p > "$STATE"\n'
"""The blocks of a page share their variables, as they would in a reader's terminal."""


@pytest.mark.req("SF-42")
@pytest.mark.parametrize("page", [page for page in WRITTEN_BY_HAND if "```sh\n" in _read(page)], ids=_id)
def test_the_commands_of_a_page_work(page: Path, tmp_path: Path) -> None:
    """The blocks of a page follow one another in one folder, as they would for a reader."""
    home = tmp_path / "home"
    home.mkdir()
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SHOPFLOOR_STORAGE": str(tmp_path / "storage"),
        "HOME": str(home),
        "STATE": str(tmp_path / "state"),
        "SHOPFLOOR_SCRIPT_DELAY_MS": "0",
    }
    for block in all_blocks(_read(page)):
        if block.title:
            file = home / block.title
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text, encoding="utf-8")
        if block.language == "sh":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", _KEEP_VARIABLES.format(code=block.text)],
                cwd=home,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            output = f"{_id(page)}:{block.line} exits with {done.returncode}\n{done.stdout}\n{done.stderr}"
            assert done.returncode == 0, output


@pytest.mark.parametrize("page", [page for page in WRITTEN_BY_HAND if "```console\n" in _read(page)], ids=_id)
def test_commands_that_are_only_shown_have_valid_syntax(page: Path) -> None:
    """Commands that need an account, a network or a server of the reader's own are in `console` blocks."""
    for block in blocks(_read(page), "console"):
        for command in commands_of(block):
            where = f"{_id(page)}:{block.line}: {command}"
            assert subprocess.run(["bash", "-n", "-c", command], capture_output=True).returncode == 0, where
            for arguments in shopfloor_calls(command):
                _parse(arguments, where)


def shopfloor_calls(command: str) -> list[list[str]]:
    """Return the arguments of each `shopfloor` in a command line."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;()<>")
    lexer.whitespace_split = True
    calls: list[list[str]] = []
    current: list[str] | None = None
    for word in lexer:
        if set(word) <= set("|&;()"):
            current = None
        elif set(word) <= set("<>"):
            current = None  # a redirection ends the arguments in all of our examples
        elif current is not None:
            current.append(word)
        elif word == "shopfloor" and not any(tool in command for tool in ("pipx ", "uv tool ")):
            calls.append(current := [])
    return calls


def _parse(arguments: list[str], where: str) -> None:
    name = next((word for word in arguments if not word.startswith("-")), None)
    if name is None:
        assert arguments in (["--version"], ["--help"]), where
        return
    assert name in COMMANDS, where
    try:
        find_command(name).parser(name, COMMANDS[name]).parse_args(arguments[1:])
    except SystemExit:
        pytest.fail(f"{where}: `shopfloor {name}` does not take these arguments")


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=_id)
def test_code_on_a_page_names_its_language_and_can_be_parsed(page: Path) -> None:
    text = _read(page)
    assert not re.search(r"^[ \t]+```", text, re.MULTILINE), "an indented block is not seen by the tests"
    assert text.count("\n```") == 2 * len(list(all_blocks(text))), "a block has an unknown form"
    for block in all_blocks(text):
        assert block.language, f"{_id(page)}:{block.line} names no language"
        match block.language:
            case "python":
                compile(block.text, f"{_id(page)}:{block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            case "yaml":
                assert yaml.safe_load(block.text) is not None
            case "json":
                json.loads(block.text)
            case _:
                pass


def installs_that_do_not_work(text: str) -> list[str]:
    """Return the commands that install Shopfloor from a package index, where it is not published."""
    found = re.findall(r"\b(?:pip|pipx|uv tool|uv pip) install [^`\n]*shopfloor[^`\n]*", text)
    return [command for command in found if not re.search(r" @ git\+|\.whl", command)]


@pytest.mark.parametrize("page", WRITTEN_BY_HAND, ids=_id)
def test_no_page_has_an_installation_that_does_not_work(page: Path) -> None:
    assert installs_that_do_not_work(_read(page)) == []


# The examples of worker.yaml


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    for slug, text in example_workers().items():
        (folder / "workers" / slug).mkdir(parents=True)
        (folder / "workers" / slug / "worker.yaml").write_text(text, encoding="utf-8")
    return folder


def test_every_example_of_worker_yaml_passes_the_check(examples: Path) -> None:
    command = [Path(sys.executable).parent / "shopfloor", "workers", "check", *example_workers()]
    done = subprocess.run(command, cwd=examples, capture_output=True, text=True, timeout=120)
    assert done.stdout == f"{len(example_workers())} workers are fine\n", done.stdout + done.stderr


NEEDS_AN_ACCOUNT = {"example-agent"}
NEEDS_A_PLUGIN = {"example-operation"}
"""`tests/engine/test_operations.py` runs it."""
OUTPUTS: dict[str, Any] = {
    "example-tool-call": ["found tea"],
    "example-while": "3",
    "example-terminal": {"number": 3},
    "example-ask": "painted it green",
    "example-submit-result": "All tests pass.",
}


@pytest.mark.parametrize("slug", sorted(example_workers().keys() - NEEDS_AN_ACCOUNT - NEEDS_A_PLUGIN))
def test_every_example_of_worker_yaml_runs(
    slug: str, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tools = {"ask": lambda args: args["options"][1], "web-search": lambda args: [f"found {args['query']}"]}
    with shopfloor.testing.engine(workers=[examples / "workers"]) as engine:
        run = engine.run(slug, tools=tools)
    assert run.status == "completed", run.error
    assert run.output == OUTPUTS.get(slug, run.output)


# Links, and the site


@pytest.mark.req("SF-42")
@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_between_pages_have_targets(page: Path) -> None:
    assert [target for target in links(_read(page)) if not _has_target(page, target)] == []


def _has_target(page: Path, target: str) -> bool:
    name, _, anchor = unquote(target).partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return False
    return not anchor or anchor in anchors(_read(file))


class _Loader(yaml.SafeLoader):
    """A YAML loader for mkdocs.yml that ignores the Python objects in it."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def nav_pages(nav: Any) -> Iterator[str]:
    """Yield the pages that a nav of mkdocs.yml lists, at any depth."""
    match nav:
        case str():
            yield nav
        case dict() | list():
            for part in nav.values() if isinstance(nav, dict) else nav:
                yield from nav_pages(part)
        case _:
            pytest.fail(f"mkdocs.yml has {nav!r} in its nav")


@pytest.mark.req("SF-42")
def test_the_nav_of_the_site_lists_every_page_once() -> None:
    config = yaml.load(_read(ROOT / "mkdocs.yml"), _Loader)
    listed = sorted(nav_pages(config["nav"]))
    assert listed == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")), "mend `nav` in mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    env = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_the_site_can_be_searched_and_loads_nothing_from_other_servers(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert {"tutorial.html", "how-to/install.html", "reference/worker-yaml.html"} <= found
    loads = re.compile(
        r"<(?:script|img|iframe|link(?! rel=\"(?:canonical|prev|next)\"))[^>]*(?:src|href)=\"?(?:https?:)?//"
    )
    assert [page.name for page in site.rglob("*.html") if loads.search(page.read_text(encoding="utf-8"))] == []


# Pages that name code and tests


def test_every_test_that_the_security_page_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", _read(DOCS / "security.md"))
    assert named
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_page_on_adapters_names_every_port_and_existing_suites() -> None:
    page = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    suites = set(re.findall(r"`(test_\w+\.py)`", page))
    assert suites <= {path.name for path in (ROOT / "tests" / "contract").iterdir()}
    ports = {
        name
        for name, port in vars(shopfloor.ports).items()
        # Only ports are listed. An object that a port returns, such as a log or a subscription, belongs to the port.
        if getattr(port, "_is_protocol", False) and name not in _PARTS_OF_PORTS
    }
    assert ports - set(re.findall(r"`(\w+)`", page)) == set()


def test_the_path_of_a_run_names_existing_functions_in_at_most_forty_hops() -> None:
    section = _read(DOCS / "concepts.md").split("## The way of a run")[1].split("\n## ")[0]
    hops = re.findall(r"^\| (\d+) \| `([\w.]+)` \| `([\w./]+)` \|", section, re.MULTILINE)
    assert [int(number) for number, _, _ in hops] == list(range(1, len(hops) + 1))
    assert 30 < len(hops) <= 40
    for _, name, file in hops:
        path = ROOT / (file if file.startswith("web/") else f"src/shopfloor/{file}")
        for part in name.split("."):
            assert re.search(rf"\b(class|def|function|const) {part}\b", _read(path)), (name, file)


# The helpers of this file


def test_blocks_are_found_by_their_language_title_and_line() -> None:
    page = 'a\n```sh\necho 1\n```\nb\n```yaml title="x/y.yaml"\na: 1\n```\n```sh\necho 2\necho 3\n```\n'
    assert list(blocks(page, "sh")) == [Block(3, "sh", None, "echo 1\n"), Block(10, "sh", None, "echo 2\necho 3\n")]
    assert list(blocks(page, "yaml")) == [Block(7, "yaml", "x/y.yaml", "a: 1\n")]


def test_links_in_code_and_to_the_web_are_skipped() -> None:
    page = "[a](x.md) ![b](y.svg#z) [c](https://example.org)\n```sh\n[d](no.md)\n```\n[e](#top)\n"
    assert list(links(page)) == ["x.md", "y.svg#z", "#top"]


def test_anchors_are_generated_as_markdown_hosts_do() -> None:
    assert anchors("# One, two\n## `run.started`\n### A_b-c\n") == {"one-two", "runstarted", "a_b-c"}


def test_calls_of_shopfloor_are_found_in_a_command_line() -> None:
    line = "cd x && shopfloor run --provider codex - < task.md | shopfloor normalize codex > run.jsonl  # why"
    assert shopfloor_calls(line) == [["run", "--provider", "codex", "-"], ["normalize", "codex"]]


def test_installing_from_an_index_is_recognized() -> None:
    works = "pipx install 'shopfloor[models] @ git+https://example.org/x.git'\npipx install dist/shopfloor-1-any.whl\n"
    assert installs_that_do_not_work(works + "pip install 'shopfloor[models]'\n") == ["pip install 'shopfloor[models]'"]


def test_the_nav_is_read_at_any_depth() -> None:
    assert list(nav_pages([{"A": "a.md"}, {"B": [{"C": "c.md"}, "d.md"]}])) == ["a.md", "c.md", "d.md"]
