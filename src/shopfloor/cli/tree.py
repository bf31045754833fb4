"""`shopfloor tree`: show the steps of a run and of its sub-runs as a tree."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shopfloor.cli.arguments import (
    Parser,
    ReadWarnings,
    add_color_option,
    add_run_argument,
    log_path_from_args,
    storage_from_args,
)
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.style import (
    Style,
    escape_controls,
    format_based_on,
    format_duration,
    format_later_runs,
    one_line,
)
from shopfloor.errors import TranscriptBroken
from shopfloor.limits import PREVIEW_CHARS, TREE_SIBLINGS
from shopfloor.log import is_run_id
from shopfloor.record import has_active_host, read
from shopfloor.views import INTERRUPTED, Outline, Step, TreeRow, display_status, outline, tree

EXAMPLES = """\
  shopfloor tree last          the newest run and its sub-runs
  shopfloor tree 5f3a --full   with all steps of long loops"""
_COLORS = {
    "completed": "green",
    "failed": "red",
    "cancelled": "yellow",
    "running": "cyan",
    "waiting": "cyan",
    INTERRUPTED: "yellow",
}
_SIGNS = {"completed": "✓", "failed": "✗", "cancelled": "■", "running": "…", "waiting": "?", INTERRUPTED: "!"}


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    add_run_argument(parser)
    parser.add_argument("--full", action="store_true", help=f"show more than {TREE_SIBLINGS} steps on one level")
    add_json_option(parser, "print the rows of the tree as JSON, with all steps")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    """Print the tree of the run."""
    path = log_path_from_args(args)
    warnings = ReadWarnings()
    if next(read(path, limit=1, on_problem=warnings), None) is None:
        raise TranscriptBroken(f"{path} has no events", hint="`shopfloor verify` reports what is wrong with the file")
    style = Style.from_choice(args.color)
    runs: dict[str, _Run] = {}

    def load(run_id: str) -> Outline | None:
        file = path if run_id == path.stem else path.parent / f"{run_id}.jsonl"
        # An id in a transcript is not trusted as a file name.
        if not ((file == path or is_run_id(run_id)) and file.exists()):
            return None
        found = outline(warnings.decode_events(read(file, on_problem=warnings)))
        runs[found.run_id] = _Run(found, file, frozenset(step.path for step in found.steps.values()))
        return found

    rows = list(tree(path.stem, load, siblings=None if args.full or args.json else TREE_SIBLINGS))
    if any(known.outline.open_calls and not known.outline.is_ended for known in runs.values()):
        _mark_answered(args, path, runs)
    root = runs[path.stem].outline if path.stem in runs else None
    later = _later_runs(args, path)
    if args.json:
        print_json(
            {
                "based_on": root and root.based_on,
                "continued_by": [{"run_id": run_id, "kind": kind} for run_id, kind in later],
                "rows": [_row_json(row, runs) for row in rows],
            }
        )
        return 0
    for line in _earlier_and_later(root, later):
        print(style.paint(line, "dim"))
    for row in rows:
        print(_branch(row.guides) + _label(row, style, runs))
    return 0


def _later_runs(args: Namespace, path: Path) -> Sequence[tuple[str, str]]:
    """Return the id and kind of the runs that are based on this one."""
    from shopfloor.wiring import find_later_runs

    storage = storage_from_args(args)
    return find_later_runs(storage, path.stem) if path.parent == storage.transcripts else []


def _earlier_and_later(run: Outline | None, later: Sequence[tuple[str, str]]) -> list[str]:
    """Return the lines that name the run that this one is based on, and the runs that are based on this one."""
    parts = [format_based_on(run.based_on) if run is not None else None, format_later_runs(later)]
    return [f"{name} {text}" for name, text in zip(("earlier:", "then:"), map(_one_line, parts), strict=True) if text]


def _one_line(text: str | None) -> str | None:
    return text and one_line(text, PREVIEW_CHARS)


def _mark_answered(args: Namespace, path: Path, runs: Mapping[str, _Run]) -> None:
    """Replace the text of each open call that has an answer which its run has not read yet."""
    from shopfloor.cli.pending_calls import fetch_answered_calls, unread_answer_text

    for run_id, call_id in fetch_answered_calls(args, path):
        step = runs[run_id].outline.open_calls.get(call_id) if run_id in runs else None
        if step is not None and step.asks is not None:
            step.asks = unread_answer_text(step.asks)


class _Run(NamedTuple):
    outline: Outline
    path: Path
    step_paths: frozenset[str]

    @property
    def has_active_host(self) -> bool:
        return has_active_host(self.path, self.outline.host)


def _branch(guides: tuple[bool, ...]) -> str:
    if not guides:
        return ""
    above = "".join("│  " if more else "   " for more in guides[:-1])
    return above + ("├─ " if guides[-1] else "└─ ")


def _label(row: TreeRow, style: Style, runs: Mapping[str, _Run]) -> str:
    if row.left_out:
        return style.paint(f"… {row.left_out:,} more; --full shows them", "dim")
    parts: list[str] = []
    if row.step is not None:
        parts.append(_step_label(row.step, style, runs[row.owner], row.run and runs[row.run.run_id]))
    if row.run is not None:
        parts.append(_run_label(runs[row.run.run_id], style))
    if row.missing_run_id is not None:
        parts.append(style.paint(f"run {escape_controls(row.missing_run_id)}: no transcript found", "yellow"))
    if row.repeated_run_id is not None:
        parts.append(style.paint(f"run {escape_controls(row.repeated_run_id)}: shown above", "yellow"))
    return " → ".join(parts)


def _row_json(row: TreeRow, runs: Mapping[str, _Run]) -> dict[str, Any]:
    """Return a row for programs. The rows are a list, because a tree may be deeper than a JSON reader accepts."""
    called = row.run and runs[row.run.run_id]
    return {
        "depth": len(row.guides),
        "run_id": row.owner or None,
        "step": None if row.step is None else _step_json(row.step, runs[row.owner], called),
        "run": None if called is None else _run_json(called),
        "missing_run_id": row.missing_run_id,
        "repeated_run_id": row.repeated_run_id,
    }


def _step_json(step: Step, run: _Run, called: _Run | None) -> dict[str, Any]:
    fields = ("path", "iteration", "name", "kind", "error", "asks", "duration_ms")
    return {
        **{name: getattr(step, name) for name in fields},
        "try": step.try_,
        "status": _step_state(step, run, called),
    }


def _run_json(known: _Run) -> dict[str, Any]:
    fields = ("run_id", "name", "kind", "task", "started_at", "error", "duration_ms")
    status = display_status(known.outline.state, has_active_host=known.has_active_host)
    return {**{name: getattr(known.outline, name) for name in fields}, "status": status}


def _step_state(step: Step, run: _Run, called: _Run | None) -> str:
    active = called if called is not None and not called.outline.is_ended else run
    return display_status(run.outline.state_of(step, called and called.outline), has_active_host=active.has_active_host)


def _step_label(step: Step, style: Style, run: _Run, called: _Run | None) -> str:
    state = _step_state(step, run, called)
    again = f" (try {step.try_})" if step.try_ > 1 else ""
    name = style.paint(f"{_SIGNS[state]} {one_line(_title(step, run), PREVIEW_CHARS)}{again}", _COLORS[state])
    kind = "" if step.kind in (step.name, "call_workflow") else f"[{one_line(step.kind, PREVIEW_CHARS)}]"
    head = f"{name} {style.paint(kind, 'dim')}".rstrip()
    texts = (one_line(text or "", PREVIEW_CHARS) for text in (step.asks, step.error))
    return _parts(head, *texts, style.paint(format_duration(step.duration_ms), "dim"))


def _title(step: Step, run: _Run) -> str:
    """Return the name of a step, after the parts of its path that have no row of their own, such as a loop's index."""
    *outer, _ = step.path.split(".")
    start = len(outer)
    while start and ".".join(outer[:start]) not in run.step_paths:
        start -= 1
    return " / ".join([*outer[start:], step.name])


def _run_label(known: _Run, style: Style) -> str:
    run = known.outline
    state = display_status(run.state, has_active_host=known.has_active_host)
    head = f"{style.paint(f'run {escape_controls(run.run_id[:8])}', 'bold')} {one_line(run.name, PREVIEW_CHARS)}"
    return _parts(
        f"{head} {style.paint(f'{_SIGNS[state]} {state}', _COLORS[state])}",
        one_line(run.error or run.waits.hold_reason or "", PREVIEW_CHARS),
        style.paint(format_duration(run.duration_ms), "dim"),
    )


def _parts(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
