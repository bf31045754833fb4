"""`shopfloor tree`: the steps of a run and of its sub-runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from shopfloor.cli.arguments import Notes, Parser, add_color, add_run, log_of
from shopfloor.cli.style import Style, duration, one_line, safe
from shopfloor.errors import TranscriptBroken
from shopfloor.limits import PREVIEW_CHARS, TREE_SIBLINGS
from shopfloor.log import is_run_id
from shopfloor.record import is_attended, read
from shopfloor.views import INTERRUPTED, Outline, Row, Step, outline, shown_status, tree

EXAMPLES = """\
  shopfloor tree last          the newest run and all its sub-runs
  shopfloor tree 5f3a --full   with every step of long loops"""
_LOOKS = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "running": "cyan",
    "waiting": "cyan",
    INTERRUPTED: "yellow",
}
_SIGNS = {"completed": "✓", "failed": "✗", "cancelled": "■", "running": "…", "waiting": "?", INTERRUPTED: "!"}


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
    runs: dict[str, _Run] = {}

    def load(run_id: str) -> Outline | None:
        file = path if run_id == path.stem else path.parent / f"{run_id}.jsonl"
        # Ids in a file are not to be trusted with a file's name.
        if not ((file == path or is_run_id(run_id)) and file.exists()):
            return None
        found = outline(notes.decoded(read(file, report=notes)))
        runs[found.run_id] = _Run(found, file)
        return found

    rows = list(tree(path.stem, load, siblings=None if args.full else TREE_SIBLINGS))
    if any(known.outline.open_calls and not known.outline.is_ended for known in runs.values()):
        _mark_answered(args, path, runs)
    for row in rows:
        print(_branch(row.guides) + _label(row, style, runs))
    return 0


def _mark_answered(args: Namespace, path: Path, runs: Mapping[str, _Run]) -> None:
    """Say of each open call that somebody has answered that its run has not taken the answer up yet."""
    from shopfloor.cli.waiting import answered_calls, not_taken_up

    for run_id, call_id in answered_calls(args, path):
        step = runs[run_id].outline.open_calls.get(call_id) if run_id in runs else None
        if step is not None and step.asks is not None:
            step.asks = not_taken_up(step.asks)


class _Run(NamedTuple):
    outline: Outline
    path: Path

    @property
    def is_attended(self) -> bool:
        return is_attended(self.path, self.outline.host)


def _branch(guides: tuple[bool, ...]) -> str:
    if not guides:
        return ""
    above = "".join("│  " if more else "   " for more in guides[:-1])
    return above + ("├─ " if guides[-1] else "└─ ")


def _label(row: Row, style: Style, runs: Mapping[str, _Run]) -> str:
    if row.left_out:
        return style.paint(f"… {row.left_out:,} more; --full shows them", "dim")
    parts: list[str] = []
    if row.step is not None:
        parts.append(_step_label(row.step, style, runs[row.owner], row.run and runs[row.run.run_id]))
    if row.run is not None:
        parts.append(_run_label(runs[row.run.run_id], style))
    if row.missing is not None:
        parts.append(style.paint(f"run {safe(row.missing)}: there is no transcript of it", "yellow"))
    if row.again is not None:
        parts.append(style.paint(f"run {safe(row.again)} stands above already", "yellow"))
    return " → ".join(parts)


def _step_label(step: Step, style: Style, run: _Run, called: _Run | None) -> str:
    attended = called if called is not None and not called.outline.is_ended else run
    state = shown_status(run.outline.state_of(step, called and called.outline), is_attended=attended.is_attended)
    again = f" (try {step.try_})" if step.try_ > 1 else ""
    name = style.paint(f"{_SIGNS[state]} {one_line(step.path, PREVIEW_CHARS)}{again}", _LOOKS[state])
    kind = "" if step.kind in (step.name, "call_workflow") else f"[{one_line(step.kind, PREVIEW_CHARS)}]"
    head = f"{name} {style.paint(kind, 'dim')}".rstrip()
    texts = (one_line(text or "", PREVIEW_CHARS) for text in (step.asks, step.error))
    return _parts(head, *texts, style.paint(duration(step.duration_ms), "dim"))


def _run_label(known: _Run, style: Style) -> str:
    run = known.outline
    state = shown_status(run.state, is_attended=known.is_attended)
    head = f"{style.paint(f'run {safe(run.run_id[:8])}', 'bold')} {one_line(run.name, PREVIEW_CHARS)}"
    return _parts(
        f"{head} {style.paint(f'{_SIGNS[state]} {state}', _LOOKS[state])}",
        one_line(run.error or run.waits.held or "", PREVIEW_CHARS),
        style.paint(duration(run.duration_ms), "dim"),
    )


def _parts(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
