"""What a reviewer would otherwise have to remember: sizes, the doors of rooms, what is loaded when, errors, pages."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.sample_events import GOLDEN_FILES
from tools import docs, docs_errors, docs_record, messages
from tools.docs_source import ROOT, SOURCE, module_name, parsed

MODULE_LINES = 500
FUNCTION_LINES = 70
MODULES = sorted(SOURCE.rglob("*.py"))
SCRIPTS = sorted([*(ROOT / "tools").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")])
BIN = Path(sys.executable).parent

HELP_LOADS = {
    "shopfloor",
    "shopfloor.cli",
    "shopfloor.cli.main",
    "shopfloor.errors",
    "shopfloor.lazy",
    "shopfloor.version",
}
HELP_NEVER_LOADS = {
    *("anyio", "argparse", "asyncio", "concurrent.futures", "dataclasses", "inspect", "json", "logging", "msgspec"),
    *("pathlib", "platformdirs", "shutil", "socket", "ssl", "subprocess", "tempfile", "threading", "uuid"),
}

WORKPLACE = re.compile(r"(?<![\w.-])/(?:work|farm)/|\.\./shared\b")


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _without_coverage() -> dict[str, str]:
    """Our environment without what makes a new process measure its coverage, and load modules for that."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


# Sizes


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS], ids=_id)
def test_a_module_is_short_enough_to_be_read_at_once(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MODULE_LINES


@pytest.mark.parametrize("path", [*MODULES, *SCRIPTS], ids=_id)
def test_functions_fit_on_a_screen(path: Path) -> None:
    functions = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    assert {name: lines for name, lines in lengths.items() if lines > FUNCTION_LINES} == {}


# Rooms and their doors


def room_of(module: str) -> str:
    """The room that a module is in: `shopfloor.record`; under `adapters` each folder is one."""
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["adapters"] else 2])


def imports(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports, as it names them."""
    for node in ast.walk(parsed(path)):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if alias.name.startswith("shopfloor"))
            case ast.ImportFrom(module=str() as module, level=0) if module.split(".")[0] == "shopfloor":
                yield module
            case ast.ImportFrom(level=level) if level:
                yield "a relative import"
            case _:
                pass


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_a_room_is_entered_by_its_init_alone(path: Path) -> None:
    own = room_of(module_name(path))
    strangers = [name for name in imports(path) if room_of(name) != own]
    assert [name for name in strangers if name != room_of(name)] == []


def test_decoders_are_built_in_one_place() -> None:
    # Elsewhere two threads could build one at once, which crashes the process: see decoding.py.
    pattern = re.compile(r"msgspec\.convert\(|json\.Decoder\([^)]|msgspec\.json\.decode\([^\n]*type=")
    found = [_id(path) for path in MODULES if pattern.search(path.read_text(encoding="utf-8"))]
    assert found == ["src/shopfloor/decoding.py"]


@pytest.mark.parametrize(
    ("module", "room"),
    [
        ("shopfloor", "shopfloor"),
        ("shopfloor.errors", "shopfloor.errors"),
        ("shopfloor.record.reader", "shopfloor.record"),
        ("shopfloor.adapters.local", "shopfloor.adapters.local"),
        ("shopfloor.adapters.local.hosts", "shopfloor.adapters.local"),
    ],
)
def test_a_module_knows_its_room(module: str, room: str) -> None:
    assert room_of(module) == room


def test_imports_point_down_only() -> None:
    command = [str(BIN / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_contract_of_imports_has_no_exceptions_and_leaves_no_room_out() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contracts = settings["contracts"]
    assert [contract["type"] for contract in contracts] == ["layers", "forbidden"]
    assert contracts[0]["exhaustive"]
    exceptions = {"ignore_imports", "allow_indirect_imports", "unmatched_ignore_imports_alerting"}
    assert [contract for contract in contracts if exceptions & set(contract)] == []


# The doors themselves


def sort_key(name: str) -> tuple[int, list[int | str]]:
    """CONSTANTS, then Classes, then the rest; digits count as numbers."""
    rank = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return rank, [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def said_names(path: Path) -> list[str] | None:
    """What `__all__` says; None where there is none."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def door_lines(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The lines of a door; what a lazy one promises stands under `if TYPE_CHECKING:`."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body
        else:
            yield node


def made_names(path: Path) -> set[str]:
    """What a door imports or defines to be used by others."""
    names: set[str] = set()
    for node in door_lines(parsed(path).body):
        match node:
            case ast.ImportFrom(module=module, names=aliases) if module not in ("__future__", "typing"):
                names |= {alias.asname or alias.name for alias in aliases}
            case ast.Assign(targets=[ast.Name(id=name)]) if name != "__all__":
                names.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case _:
                pass
    return {name for name in names if not name.startswith("_") or name == "__version__"}


DOORS = [path for path in MODULES if path.name == "__init__.py" and made_names(path)]


@pytest.mark.parametrize("path", DOORS, ids=_id)
def test_a_door_says_all_that_it_gives_in_order(path: Path) -> None:
    said = said_names(path)
    assert said is not None, "it has no __all__"
    assert set(said) == made_names(path)
    assert said == sorted(said, key=sort_key)


# What is loaded when

SLOW_TO_LOAD = {"httpx", "pydantic_ai", "uvicorn"}
"""What a command that asks an app in its own process has no use for."""


def loaded_by(*words: str) -> set[str]:
    """The modules that a fresh interpreter loads for this, beyond those that it loads for nothing."""

    def loaded(*command: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *command],
            env=_without_coverage(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        lines = [line.split("|") for line in done.stderr.splitlines() if line.startswith("import time:")]
        return {parts[2].strip() for parts in lines[1:]}

    return loaded(*words) - loaded("-c", "pass")


def test_help_loads_next_to_nothing() -> None:
    loaded = loaded_by(str(BIN / "shopfloor"), "--help")
    assert {name for name in loaded if name.split(".")[0] == "shopfloor"} == HELP_LOADS
    assert loaded & HELP_NEVER_LOADS == set()
    assert {name for name in loaded if name.split(".")[0] not in {*sys.stdlib_module_names, "shopfloor"}} == set()


def test_the_version_is_said_without_loading_more_than_help() -> None:
    loaded = loaded_by(str(BIN / "shopfloor"), "--version")
    assert {name for name in loaded if name.split(".")[0] == "shopfloor"} == HELP_LOADS


@pytest.mark.req("SF-34")
@pytest.mark.parametrize("words", [("list",), ("run", "hello", "-q", "-i", "NAME=Ada")], ids=lambda words: words[0])
def test_a_command_without_a_server_loads_neither_http_nor_what_makes_sql(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOPFLOOR_URL", raising=False)
    loaded = loaded_by(str(BIN / "shopfloor"), *words, "--storage", str(tmp_path))
    assert "shopfloor.adapters.sqlite.store" in loaded
    assert {name.partition(".")[0] for name in loaded} & SLOW_TO_LOAD == set()


NOT_BEFORE_THE_FIRST_ANSWER = {
    "difflib",
    "httpx",
    "pydantic_ai",
    "shopfloor.engine.interpreter",
    "shopfloor.engine.run",
    "shopfloor.engine.workers.parsing",
    "shopfloor.yaml_document",
    "yaml",
}
"""What `up` loads once it answers, or when it is needed."""


@pytest.mark.req("SF-37")
def test_up_answers_before_it_loads_what_only_runs_need(tmp_path: Path) -> None:
    # What it prints and what it imports come by the same pipe, in order; it prints nothing before it answers.
    up = subprocess.Popen(
        [sys.executable, "-X", "importtime", str(BIN / "shopfloor"), "up", "--port", "0", "--storage", str(tmp_path)],
        env=_without_coverage(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert up.stdout is not None
        before = _imports_until("Shopfloor is up: ", up.stdout)
        after = _imports_until("  the API is described at ", up.stdout)
    finally:
        up.terminate()
        up.communicate(timeout=60)
    assert {"shopfloor.server.app", "shopfloor.engine.scheduler", "uvicorn"} <= before
    assert before & NOT_BEFORE_THE_FIRST_ANSWER == set()
    assert "yaml" in after


def _imports_until(beginning: str, lines: Iterable[str]) -> set[str]:
    """The modules that were imported until a line with this beginning was printed."""
    loaded: set[str] = set()
    for line in lines:
        if line.startswith(beginning):
            return loaded
        if line.startswith("import time:"):
            loaded.add(line.split("|")[2].strip())
    raise AssertionError(f"{beginning!r} was never printed; imported were {sorted(loaded)}")


# Errors


def test_the_codes_of_errors_are_unique() -> None:
    codes = Counter(cls.code for cls in docs_errors.our_errors())
    assert [code for code, times in codes.items() if times > 1] == []
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(_[a-z]+)*", code)] == []


def test_the_tree_of_errors_is_drawn_as_it_grows() -> None:
    depth = {cls.__name__: len(cls.__mro__) for cls in docs_errors.our_errors()}
    root = depth["ShopfloorError"]
    drawn = [(re.search(r"[A-Z]", line), line) for line in docs_errors.render_tree()]
    as_drawn = [(line[start.start() :].split()[0], start.start() // 4) for start, line in drawn if start]
    assert as_drawn == [(name, levels - root) for name, levels in depth.items()]


def test_every_error_has_an_http_status_and_an_exit_code_in_range() -> None:
    errors = docs_errors.our_errors()
    assert [cls for cls in errors if not 400 <= cls.status <= 599] == []
    # From 128 on a shell means a signal; 126 and 127 mean a program that cannot be run.
    assert [cls for cls in errors if not 1 <= cls.exit_code <= 127] == []


def test_every_code_of_an_error_is_in_the_reference() -> None:
    page = (docs.FOLDER / "errors.md").read_text(encoding="utf-8")
    assert [cls.code for cls in docs_errors.our_errors() if f"| `{cls.code}` |" not in page] == []


# Pages that are made from the code


def test_no_page_of_the_reference_is_stale() -> None:
    assert [_id(path) for path in docs.stale_pages(docs.FOLDER)] == [], "run `make docs`"


def test_check_names_the_pages_that_are_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "PAGES", {"fresh.md": lambda: "new", "stale.md": lambda: "new"})
    monkeypatch.setattr(docs, "FOLDER", tmp_path)
    (tmp_path / "fresh.md").write_text("new", encoding="utf-8")
    (tmp_path / "stale.md").write_text("old", encoding="utf-8")
    assert docs.main(["--check"]) == 1
    assert capsys.readouterr().out == "stale.md is stale: run `make docs`\n"
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0


def test_the_list_of_messages_is_not_stale() -> None:
    assert not messages.is_stale(), "tests/golden/messages.txt differs from the source: run `make messages`"


@pytest.mark.req("TR-46", "TR-47", "TR-48", "TR-49", "TR-50")
@pytest.mark.parametrize("golden", GOLDEN_FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("line", [line for _, line in docs_record.JQ_LINES])
def test_the_jq_lines_of_the_reference_work(line: str, golden: Path) -> None:
    command = ["sh", "-c", line.replace("FILE", '"$1"'), "sh", str(golden)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_picture_escapes_what_it_shows() -> None:
    from tools import screenshot

    picture = screenshot.svg("\x1b[31;1m<b>&\x1b[0m after")
    assert "&lt;b&gt;&amp;" in picture
    assert picture.count("fill:#ff7b72;font-weight:bold") == 1
    assert "\x1b" not in picture


# Nothing speaks of where it was made


def _texts() -> list[Path]:
    folders = ("src", "tools", "tests", "benchmarks", "docs", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    kept = [path for path in files if "__pycache__" not in path.parts]
    return sorted([*kept, *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"])


def test_no_file_speaks_of_the_place_where_it_was_written() -> None:
    assert [
        _id(path) for path in _texts() if WORKPLACE.search(path.read_text(encoding="utf-8", errors="replace"))
    ] == []


@pytest.mark.parametrize(
    ("text", "speaks"),
    [("see /" + "work/x", True), ("in '../" + "shared'", True), ("src/network/x", False), ("team/work/x", False)],
)
def test_the_place_is_known_by_absolute_paths(text: str, speaks: bool) -> None:
    assert bool(WORKPLACE.search(text)) is speaks
