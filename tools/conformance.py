"""docs/conformance.md: the promises of tests/requirements.toml, and which of them a test proves."""

import argparse
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "tests" / "requirements.toml"
PAGE = ROOT / "docs" / "conformance.md"

# The key of each part in the manifest, and its title on the page, in the order of the page.
PARTS = {
    "workers-tab": "Workers tab",
    "transcript": "Exchange transcript",
    "dispatch": "Worker dispatch",
    "fleet": "Fleet events",
    "hosts": "Several hosts",
    "sdk": "Workers SDK",
    "shopfloor": "Shopfloor itself",
}
MARKS = {"done": "✓", "planned": "·"}
INTRO = (
    "What Shopfloor promises, and which promises a test already proves (✓). "
    "Generated from `tests/requirements.toml` by `make docs`; do not edit by hand."
)
KEYS = ("id", "part", "text", "status")


@dataclass(frozen=True)
class Requirement:
    id: str
    part: str
    text: str
    status: str


def load(path: Path) -> list[Requirement]:
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get("requirement", [])
    requirements = [_parse(entry, number) for number, entry in enumerate(entries, start=1)]
    seen: set[str] = set()
    for requirement in requirements:
        if requirement.id in seen:
            raise ValueError(f"{requirement.id}: this id is used twice")
        seen.add(requirement.id)
    return requirements


def _parse(entry: dict[str, Any], number: int) -> Requirement:
    name = entry.get("id", f"entry {number}")
    # Unknown keys are rejected too: a misspelled key would otherwise be ignored silently.
    if missing := [key for key in KEYS if key not in entry]:
        raise ValueError(f"{name}: missing {', '.join(missing)}")
    if unknown := sorted(entry.keys() - set(KEYS)):
        raise ValueError(f"{name}: unknown key {', '.join(unknown)}")
    if wrong := [key for key in KEYS if not isinstance(entry[key], str) or not entry[key]]:
        raise ValueError(f"{name}: {', '.join(wrong)} must be a string that is not empty")
    if entry["part"] not in PARTS:
        raise ValueError(f"{name}: unknown part {entry['part']!r}, expected one of {', '.join(PARTS)}")
    if entry["status"] not in MARKS:
        raise ValueError(f"{name}: unknown status {entry['status']!r}, expected one of {', '.join(MARKS)}")
    return Requirement(**entry)


def render(requirements: Sequence[Requirement]) -> str:
    parts = [
        "# Conformance",
        INTRO,
        _summary(requirements),
        *(_section(part, [r for r in requirements if r.part == part]) for part in PARTS),
    ]
    return "\n\n".join(parts) + "\n"


def _summary(requirements: Sequence[Requirement]) -> str:
    rows: list[tuple[str, ...]] = []
    for part, title in PARTS.items():
        rows.append((title, *_counts([r for r in requirements if r.part == part])))
    rows.append(("**All**", *_counts(requirements)))
    return _table(("part", "done", "planned", "total"), rows)


def _counts(requirements: Sequence[Requirement]) -> tuple[str, str, str]:
    done = sum(r.status == "done" for r in requirements)
    return str(done), str(len(requirements) - done), str(len(requirements))


def _section(part: str, requirements: Sequence[Requirement]) -> str:
    rows = [(r.id, r.text, MARKS[r.status]) for r in requirements]
    return f"## {PARTS[part]}\n\n" + _table(("id", "promise", "status"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    # An unescaped bar or line break would end the cell.
    return text.replace("|", "\\|").replace("\n", " ")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the page is stale")
    check: bool = parser.parse_args(argv).check
    page = render(load(MANIFEST))
    if not check:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
        print(f"{PAGE.relative_to(ROOT)} is stale: run `make docs`")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
