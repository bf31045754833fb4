"""The manifest of promises is valid, and a test carries every promise that is done."""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tools import conformance

TESTS = Path(__file__).resolve().parent.parent
PREFIXES = {
    "workers-tab": "WT",
    "transcript": "TR",
    "dispatch": "REQ-WD",
    "fleet": "FE",
    "hosts": "HO",
    "sdk": "SDK",
    "shopfloor": "SF",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def carried_ids(source: str) -> set[str]:
    """Return the requirement ids that the tests in this source carry.

    Only tests that pytest would run count: a marker on a helper proves nothing.
    """
    return set(_ids_in(ast.parse(source).body))


def _ids_in(body: list[ast.stmt]) -> Iterator[str]:
    if not _has_test(body):
        return
    for statement in body:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_test(statement):
                yield from _ids_of(statement.decorator_list)
            case ast.ClassDef() if _is_test_class(statement):
                yield from _ids_of(statement.decorator_list)
                yield from _ids_in(statement.body)
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                yield from _ids_of(value.elts if isinstance(value, ast.List | ast.Tuple) else [value])
            case _:
                pass


def _has_test(body: list[ast.stmt]) -> bool:
    functions = any(isinstance(s, Function) and _is_test(s) for s in body)
    return functions or any(isinstance(s, ast.ClassDef) and _is_test_class(s) for s in body)


def _is_test(function: Function) -> bool:
    return function.name.startswith("test_")


def _is_test_class(statement: ast.ClassDef) -> bool:
    return statement.name.startswith("Test") and _has_test(statement.body)


def _ids_of(markers: Iterable[ast.expr]) -> Iterator[str]:
    for marker in markers:
        if isinstance(marker, ast.Call) and ast.unparse(marker.func) == "pytest.mark.req":
            for argument in marker.args:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield argument.value


def _carried_by_all_tests() -> dict[str, list[str]]:
    carriers: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for name in carried_ids(path.read_text(encoding="utf-8")):
            carriers.setdefault(name, []).append(str(path.relative_to(TESTS)))
    return carriers


def _manifest(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "requirements.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _entry(**changes: str) -> str:
    entry = {"id": "TR-1", "part": "transcript", "text": "It holds.", "status": "done"} | changes
    return "[[requirement]]\n" + "".join(f'{key} = "{value}"\n' for key, value in entry.items())


def test_the_manifest_loads_and_has_promises_of_every_part() -> None:
    assert {r.part for r in conformance.load(conformance.MANIFEST)} == set(conformance.PARTS)


def test_ids_are_unique_and_have_the_prefix_of_their_part() -> None:
    requirements = conformance.load(conformance.MANIFEST)
    assert len({r.id for r in requirements}) == len(requirements)
    misfits = [r.id for r in requirements if not re.fullmatch(rf"{PREFIXES[r.part]}-[1-9]\d*", r.id)]
    assert misfits == []


@pytest.mark.parametrize("part", PREFIXES)
def test_each_part_is_numbered_from_one_without_gaps(part: str) -> None:
    ids = [r.id for r in conformance.load(conformance.MANIFEST) if r.part == part]
    assert ids == [f"{PREFIXES[part]}-{n}" for n in range(1, len(ids) + 1)]


def test_dispatch_has_exactly_its_forty_seven_requirements() -> None:
    ids = {r.id for r in conformance.load(conformance.MANIFEST) if r.part == "dispatch"}
    assert ids == {f"REQ-WD-{n}" for n in range(1, 48)}


def test_every_done_requirement_is_carried_by_a_test() -> None:
    carried = _carried_by_all_tests()
    done = [r.id for r in conformance.load(conformance.MANIFEST) if r.status == "done"]
    assert [name for name in done if name not in carried] == []


def test_no_test_carries_an_id_that_the_manifest_does_not_have() -> None:
    known = {r.id for r in conformance.load(conformance.MANIFEST)}
    unknown = {name: files for name, files in _carried_by_all_tests().items() if name not in known}
    assert unknown == {}


def test_the_conformance_page_is_not_stale() -> None:
    page = conformance.PAGE.read_text(encoding="utf-8")
    assert page == conformance.render(conformance.load(conformance.MANIFEST)), "run `make docs`"


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.req("TR-1", "TR-2")\ndef test_a(): ...',
        '@pytest.mark.req("TR-1", "TR-2")\nasync def test_a(): ...',
        '@pytest.mark.req("TR-1")\n@pytest.mark.req("TR-2")\ndef test_a(): ...',
        '@pytest.mark.req("TR-1")\nclass TestA:\n    @pytest.mark.req("TR-2")\n    def test_a(self): ...',
        'class TestA:\n    pytestmark = pytest.mark.req("TR-1", "TR-2")\n    def test_a(self): ...',
        'pytestmark = pytest.mark.req("TR-1", "TR-2")\ndef test_a(): ...',
        'pytestmark = [pytest.mark.slow, pytest.mark.req("TR-1", "TR-2")]\ndef test_a(): ...',
    ],
)
def test_the_finder_finds_ids_on_tests(source: str) -> None:
    assert carried_ids(source) == {"TR-1", "TR-2"}


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.req("TR-1")\ndef helper(): ...',
        '@pytest.mark.req("TR-1")\nclass TestNothing: ...',
        '@pytest.mark.req("TR-1")\nclass Helper:\n    def test_a(self): ...',
        'def helper():\n    @pytest.mark.req("TR-1")\n    def test_a(): ...',
        'pytestmark = pytest.mark.req("TR-1")\ndef helper(): ...',
        '@pytest.mark.other("TR-1")\ndef test_a(): ...',
        'def test_a():\n    """@pytest.mark.req("TR-1")"""',
    ],
)
def test_the_finder_skips_markers_that_no_test_carries(source: str) -> None:
    assert carried_ids(source) == set()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (_entry() + _entry(), "TR-1: this id is used twice"),
        (_entry(status="maybe"), "TR-1: unknown status 'maybe'"),
        (_entry(part="other"), "TR-1: unknown part 'other'"),
        (_entry(note="x"), "TR-1: unknown key note"),
        (_entry(text=""), "TR-1: text must be a string"),
        ('[[requirement]]\nid = "TR-1"\npart = "transcript"\n', "TR-1: missing text, status"),
        ('[[requirement]]\ntext = "x"\n', "entry 1: missing id"),
    ],
)
def test_an_invalid_manifest_is_rejected_with_the_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        conformance.load(_manifest(tmp_path, text))


def test_the_page_counts_per_part_and_marks_each_promise(tmp_path: Path) -> None:
    text = _entry(text="a|b") + _entry(id="TR-2", status="planned")
    page = conformance.render(conformance.load(_manifest(tmp_path, text)))
    assert "| Exchange transcript | 1 | 1 | 2 |" in page
    assert "| TR-1 | a\\|b | ✓ |" in page
    assert "| TR-2 | It holds. | · |" in page


def test_check_fails_on_a_stale_page_and_passes_once_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(conformance, "ROOT", tmp_path)
    monkeypatch.setattr(conformance, "PAGE", tmp_path / "conformance.md")
    monkeypatch.setattr(conformance, "MANIFEST", _manifest(tmp_path, _entry()))
    assert conformance.main(["--check"]) == 1
    assert capsys.readouterr().out == "conformance.md is stale: run `make docs`\n"
    assert conformance.main([]) == 0
    assert conformance.main(["--check"]) == 0
