"""Generate the pages of docs/reference from the code."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.docs_api import api_page
from tools.docs_blocks import worker_yaml_page
from tools.docs_cli import cli_page
from tools.docs_errors import errors_page
from tools.docs_events import events_page
from tools.docs_limits import limits_page
from tools.docs_source import ROOT
from tools.docs_transcript import transcript_page

FOLDER = ROOT / "docs" / "reference"
PAGES: Mapping[str, Callable[[], str]] = {
    "transcript.md": transcript_page,
    "cli.md": cli_page,
    "api.md": api_page,
    "errors.md": errors_page,
    "events.md": events_page,
    "limits.md": limits_page,
    "worker-yaml.md": worker_yaml_page,
}


def stale_pages(folder: Path) -> list[Path]:
    """Return the pages that differ from the code."""
    return [path for name, render in PAGES.items() if _read(path := folder / name) != render()]


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def write_pages(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, render in PAGES.items():
        (folder / name).write_text(render(), encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is stale")
    check: bool = parser.parse_args(argv).check
    if not check:
        write_pages(FOLDER)
        return 0
    stale = stale_pages(FOLDER)
    for path in stale:
        print(f"{path.relative_to(ROOT)} is stale: run `make docs`")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
