"""`shopfloor tree`: the steps of a run and of its sub-runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from shopfloor.cli.arguments import Notes, Parser, add_color, add_run, log_of
from shopfloor.cli.style import Style, duration, one_line, safe
from shopfloor.errors import TranscriptBroken
from shopfloor.limits import PREVIEW_CHARS, TREE_SIBLINGS
from shopfloor.log import is_run_id
from shopfloor.record import is_locked, read
from shopfloor.views import Outline, Row, Step, outline, tree

EXAMPLES = """\
  shopfloor tree last          the newest run and all its sub-runs
  shopfloor tree 5f3a --full   with every step of long loops"""
_LOOKS = {"completed": "green", "failed": "red", "cancelled": "yellow", "running": "cyan", "no outcome": "yellow"}
_SIGNS = {"completed": "✓", "failed": "✗", "cancelled": "■", "running": "…", "no outcome": "?"}


def parser(name: str, summary: str) -> ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run(parser)
    parser.add_argument("--full", action="store_true", help=f"show more than {TREE_SIBLINGS} steps side by side")
    add_color(parser)
    return parser


def run(args: Namespace) -> int:
    path = log_of(args)
    notes = Notes()
    if next(read(path, limit=1, report=notes), None) is None:
        raise TranscriptBroken(f"{path} holds no event", hint="`shopfloor verify` says what is wrong with it")
    style = Style.named(args.color)
    folder = path.parent

    def load(run_id: str) -> Outline | None:
        file = path if run_id == path.stem else folder / f"{run_id}.jsonl"
        # Ids in a file are not to be trusted with a file's name.
        return _outline(file, notes) if (file == path or is_run_id(run_id)) and file.exists() else None

    for row in tree(path.stem, load, siblings=None if args.full else TREE_SIBLINGS):
        print(_branch(row.guides) + _label(row, style, folder))
    return 0


def _outline(path: Path, notes: Notes) -> Outline:
    return outline(notes.decoded(read(path, report=notes)))


def _branch(guides: tuple[bool, ...]) -> str:
    if not guides:
        return ""
    above = "".join("│  " if more else "   " for more in guides[:-1])
    return above + ("├─ " if guides[-1] else "└─ ")


def _label(row: Row, style: Style, folder: Path) -> str:
    if row.left_out:
        return style.paint(f"… {row.left_out:,} more; --full shows them", "dim")
    parts: list[str] = []
    if row.step is not None:
        parts.append(_step_label(row.step, style, alive=_alive(row.owner, folder)))
    if row.run is not None:
        parts.append(_run_label(row.run, style, folder))
    if row.missing is not None:
        parts.append(style.paint(f"run {safe(row.missing)}: there is no transcript of it", "yellow"))
    if row.again is not None:
        parts.append(style.paint(f"run {safe(row.again)} stands above already", "yellow"))
    return " → ".join(parts)


def _step_label(step: Step, style: Style, *, alive: bool) -> str:
    state = ("failed" if step.error else "completed") if step.done else "running" if alive else "no outcome"
    again = f" (try {step.try_})" if step.try_ > 1 else ""
    name = style.paint(f"{_SIGNS[state]} {one_line(step.path, PREVIEW_CHARS)}{again}", _LOOKS[state])
    kind = "" if step.kind in (step.name, "call_workflow") else f"[{one_line(step.kind, PREVIEW_CHARS)}]"
    head = f"{name} {style.paint(kind, 'dim')}".rstrip()
    return _parts(head, one_line(step.error or "", PREVIEW_CHARS), style.paint(duration(step.duration_ms), "dim"))


def _run_label(run: Outline, style: Style, folder: Path) -> str:
    state: str = run.state
    if state == "running" and not _alive(run.run_id, folder):
        state = "no outcome"
    head = f"{style.paint(f'run {safe(run.run_id[:8])}', 'bold')} {one_line(run.name, PREVIEW_CHARS)}"
    return _parts(
        f"{head} {style.paint(f'{_SIGNS[state]} {state}', _LOOKS[state])}",
        one_line(run.error or "", PREVIEW_CHARS),
        style.paint(duration(run.duration_ms), "dim"),
    )


def _parts(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _alive(run_id: str, folder: Path) -> bool:
    """Whether somebody writes that run's log."""
    return is_run_id(run_id) and is_locked(folder / f"{run_id}.jsonl")
