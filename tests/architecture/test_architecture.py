"""Rules of the code base: sizes, imports, exports, start-up imports, errors, generated pages."""

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
    """Return our environment without the variables that make a new process measure coverage and load modules for it."""
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


# Packages and their imports


def package_of(module: str) -> str:
    """Return the package of a module, such as `shopfloor.record`; under `adapters` each folder is a package."""
    parts = module.split(".")
    return ".".join(parts[: 3 if parts[1:2] == ["adapters"] else 2])


def imports(path: Path) -> Iterator[str]:
    """Yield the modules of Shopfloor that a file imports."""
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
def test_a_package_is_imported_through_its_init_only(path: Path) -> None:
    own = package_of(module_name(path))
    others = [name for name in imports(path) if package_of(name) != own]
    assert [name for name in others if name != package_of(name)] == []


def test_decoders_are_built_in_one_place() -> None:
    # Two threads that build decoders at the same time crash the process: see decoding.py.
    pattern = re.compile(r"msgspec\.convert\(|json\.Decoder\([^)]|msgspec\.json\.decode\([^\n]*type=")
    found = [_id(path) for path in MODULES if pattern.search(path.read_text(encoding="utf-8"))]
    assert found == ["src/shopfloor/decoding.py"]


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("shopfloor", "shopfloor"),
        ("shopfloor.errors", "shopfloor.errors"),
        ("shopfloor.record.reader", "shopfloor.record"),
        ("shopfloor.adapters.local", "shopfloor.adapters.local"),
        ("shopfloor.adapters.local.hosts", "shopfloor.adapters.local"),
    ],
)
def test_a_module_belongs_to_its_package(module: str, package: str) -> None:
    assert package_of(module) == package


def test_imports_point_down_only() -> None:
    command = [str(BIN / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_contract_of_imports_has_no_exceptions_and_covers_every_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    contracts = settings["contracts"]
    assert [contract["type"] for contract in contracts] == ["layers", "forbidden"]
    assert contracts[0]["exhaustive"]
    exceptions = {"ignore_imports", "allow_indirect_imports", "unmatched_ignore_imports_alerting"}
    assert [contract for contract in contracts if exceptions & set(contract)] == []


# Exports of packages


def sort_key(name: str) -> tuple[int, list[int | str]]:
    """Sort CONSTANTS, then Classes, then other names; digits count as numbers."""
    rank = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return rank, [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name)]


def declared_names(path: Path) -> list[str] | None:
    """Return the names in `__all__`, or None without it."""
    for node in parsed(path).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    return None


def top_level_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of an `__init__`, including the lazy exports under `if TYPE_CHECKING:`."""
    for node in body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body
        else:
            yield node


def defined_names(path: Path) -> set[str]:
    """Return the public names that an `__init__` imports or defines."""
    names: set[str] = set()
    for node in top_level_statements(parsed(path).body):
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


PACKAGE_INITS = [path for path in MODULES if path.name == "__init__.py" and defined_names(path)]


@pytest.mark.parametrize("path", PACKAGE_INITS, ids=_id)
def test_a_package_lists_its_exports_in_order(path: Path) -> None:
    declared = declared_names(path)
    assert declared is not None, "__all__ is missing"
    assert set(declared) == defined_names(path)
    assert declared == sorted(declared, key=sort_key)


# Imports at start-up

SLOW_TO_LOAD = {"httpx", "pydantic_ai", "uvicorn"}
"""Packages that a command without a server does not need."""


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a fresh interpreter loads for a command, beyond those of an empty program."""

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

    return loaded(*arguments) - loaded("-c", "pass")


def test_help_loads_almost_nothing() -> None:
    loaded = loaded_by(str(BIN / "shopfloor"), "--help")
    assert {name for name in loaded if name.split(".")[0] == "shopfloor"} == HELP_LOADS
    assert loaded & HELP_NEVER_LOADS == set()
    assert {name for name in loaded if name.split(".")[0] not in {*sys.stdlib_module_names, "shopfloor"}} == set()


def test_the_version_loads_no_more_than_help() -> None:
    loaded = loaded_by(str(BIN / "shopfloor"), "--version")
    assert {name for name in loaded if name.split(".")[0] == "shopfloor"} == HELP_LOADS


@pytest.mark.req("SF-34")
@pytest.mark.parametrize(
    "arguments", [("list",), ("run", "hello", "-q", "-i", "NAME=Ada")], ids=lambda arguments: arguments[0]
)
def test_a_command_without_a_server_loads_no_http_client_and_no_server(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SHOPFLOOR_URL", raising=False)
    loaded = loaded_by(str(BIN / "shopfloor"), *arguments, "--storage", str(tmp_path))
    assert "shopfloor.adapters.sqlite.store" in loaded
    assert {name.partition(".")[0] for name in loaded} & SLOW_TO_LOAD == set()


NOT_BEFORE_THE_FIRST_RESPONSE = {
    "difflib",
    "httpx",
    "pydantic_ai",
    "shopfloor.engine.interpreter",
    "shopfloor.engine.run",
    "shopfloor.engine.workers.parsing",
    "shopfloor.yaml_document",
    "yaml",
}
"""Modules that `up` loads after its first response, or on first use."""


@pytest.mark.req("SF-37")
def test_up_responds_before_it_loads_modules_that_only_runs_need(tmp_path: Path) -> None:
    # Output and import times share a pipe, so their order is known; `up` prints nothing before it responds.
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
    assert before & NOT_BEFORE_THE_FIRST_RESPONSE == set()
    assert "yaml" in after


def _imports_until(prefix: str, lines: Iterable[str]) -> set[str]:
    """Return the modules that were imported until a line with this prefix was printed."""
    loaded: set[str] = set()
    for line in lines:
        if line.startswith(prefix):
            return loaded
        if line.startswith("import time:"):
            loaded.add(line.split("|")[2].strip())
    raise AssertionError(f"no line starts with {prefix!r}; imported: {sorted(loaded)}")


# Errors


def test_the_codes_of_errors_are_unique() -> None:
    codes = Counter(cls.code for cls in docs_errors.our_errors())
    assert [code for code, times in codes.items() if times > 1] == []
    assert [code for code in codes if not re.fullmatch(r"[a-z]+(_[a-z]+)*", code)] == []


def test_the_tree_of_errors_matches_the_classes() -> None:
    depth = {cls.__name__: len(cls.__mro__) for cls in docs_errors.our_errors()}
    root = depth["ShopfloorError"]
    drawn = [(re.search(r"[A-Z]", line), line) for line in docs_errors.render_tree()]
    as_drawn = [(line[start.start() :].split()[0], start.start() // 4) for start, line in drawn if start]
    assert as_drawn == [(name, levels - root) for name, levels in depth.items()]


def test_every_error_has_an_http_status_and_an_exit_code_in_range() -> None:
    errors = docs_errors.our_errors()
    assert [cls for cls in errors if not 400 <= cls.status <= 599] == []
    # In a shell, 128 and above mean a signal, 126 and 127 a program that cannot be run.
    assert [cls for cls in errors if not 1 <= cls.exit_code <= 127] == []


def test_every_code_of_an_error_is_in_the_reference() -> None:
    page = (docs.FOLDER / "errors.md").read_text(encoding="utf-8")
    assert [cls.code for cls in docs_errors.our_errors() if f"| `{cls.code}` |" not in page] == []


# Generated pages


def test_no_page_of_the_reference_is_stale() -> None:
    assert [_id(path) for path in docs.stale_pages(docs.FOLDER)] == [], "run `make docs`"


def test_check_lists_stale_pages(
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


def test_the_picture_escapes_its_text() -> None:
    from tools import screenshot

    picture = screenshot.svg("\x1b[31;1m<b>&\x1b[0m after")
    assert "&lt;b&gt;&amp;" in picture
    assert picture.count("fill:#ff7b72;font-weight:bold") == 1
    assert "\x1b" not in picture


# No paths of the machine that the code was written on


def _texts() -> list[Path]:
    folders = ("src", "tools", "tests", "benchmarks", "docs", ".ci")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    sources = [path for path in files if "__pycache__" not in path.parts]
    return sorted([*sources, *ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"])


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    assert [
        _id(path) for path in _texts() if WORKPLACE.search(path.read_text(encoding="utf-8", errors="replace"))
    ] == []


@pytest.mark.parametrize(
    ("text", "is_workplace"),
    [("see /" + "work/x", True), ("in '../" + "shared'", True), ("src/network/x", False), ("team/work/x", False)],
)
def test_paths_of_a_machine_are_recognized(text: str, is_workplace: bool) -> None:
    assert bool(WORKPLACE.search(text)) is is_workplace
