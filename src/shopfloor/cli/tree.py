"""`shopfloor tree`: the steps of a run and of its sub-runs."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shopfloor.cli.arguments import Parser, ReadWarnings, add_color_option, add_run_argument, log_path_from_args
from shopfloor.cli.style import Style, escape_controls, format_duration, one_line
from shopfloor.engine import Definition, InputField, ToolDefinition, is_required
from shopfloor.errors import TranscriptBroken
from shopfloor.limits import PREVIEW_CHARS, TREE_SIBLINGS
from shopfloor.log import is_run_id
from shopfloor.record import has_active_host, read
from shopfloor.views import INTERRUPTED, Outline, Step, TreeRow, display_status, outline, tree

_SAID = ("model", "thread", "prompt", "tool", "worker", "kind", "command", "each", "output")
"""What of a step is said beside its name."""


def definition_lines(definition: Definition, style: Style, *, origin: str) -> Iterator[str]:
    title = f" · {escape_controls(definition.name)}" if definition.name else ""
    slug, source = escape_controls(definition.slug), f"({escape_controls(origin)})"
    yield f"{style.paint(slug, 'bold')}{title} {style.paint(source, 'dim')}"
    if definition.description:
        yield f"  {one_line(definition.description, PREVIEW_CHARS)}"
    yield from _section("input", [_input(name, field) for name, field in definition.input.items()], style)
    yield from _section("tools", [_tool(name, tool) for name, tool in definition.tools.items()], style)
    if definition.function is not None:
        yield from _section("runs", [definition.function], style)
    if definition.steps:
        yield ""
        yield style.paint("steps", "bold")
        yield from _tree(definition.steps, style, "  ")
    if definition.output is not None:
        yield from _section("output", [one_line(str(definition.output), PREVIEW_CHARS)], style)


def _section(title: str, lines: list[str], style: Style) -> Iterator[str]:
    if lines:
        yield ""
        yield style.paint(title, "bold")
        yield from (f"  {line}" for line in lines)


def _input(name: str, field: InputField) -> str:
    if is_required(field):
        how = "required"
    else:
        how = "optional" if field.default is None else f"default {one_line(repr(field.default), 60)}"
    said = f"  {one_line(field.description, PREVIEW_CHARS)}" if field.description else ""
    return f"{escape_controls(name)}  {field.type}, {how}{said}"


def _tool(name: str, tool: ToolDefinition) -> str:
    whose = f"by {tool.handler}" if tool.handler else "by whoever watches the run"
    return f"{escape_controls(name)}  {one_line(tool.description, PREVIEW_CHARS)} ({escape_controls(whose)})"


def _tree(steps: Mapping[str, Any], style: Style, indent: str) -> Iterator[str]:
    for number, (name, step) in enumerate(steps.items(), start=1):
        last = number == len(steps)
        kind = str(step.__struct_config__.tag)
        said = [f"{word} {one_line(str(value), 60)}" for word in _SAID if (value := getattr(step, word, None))]
        detail = style.paint(f"[{kind}] {' · '.join(said)}".rstrip(), "dim")
        yield f"{indent}{'└─' if last else '├─'} {one_line(name, PREVIEW_CHARS)} {detail}"
        deeper = indent + ("   " if last else "│  ")
        branches: Mapping[str, Mapping[str, Any]] = getattr(step, "branches", {})
        for place, (branch, inside) in enumerate(branches.items(), start=1):
            end = place == len(branches)
            yield f"{deeper}{'└─' if end else '├─'} {one_line(branch, PREVIEW_CHARS)}"
            yield from _tree(inside, style, deeper + ("   " if end else "│  "))
        yield from _tree(getattr(step, "steps", {}), style, deeper)


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
    add_run_argument(parser)
    parser.add_argument("--full", action="store_true", help=f"show more than {TREE_SIBLINGS} steps side by side")
    add_color_option(parser)
    return parser


def run(args: Namespace) -> int:
    path = log_path_from_args(args)
    notes = ReadWarnings()
    if next(read(path, limit=1, on_problem=notes), None) is None:
        raise TranscriptBroken(f"{path} holds no event", hint="`shopfloor verify` says what is wrong with it")
    style = Style.from_choice(args.color)
    runs: dict[str, _Run] = {}

    def load(run_id: str) -> Outline | None:
        file = path if run_id == path.stem else path.parent / f"{run_id}.jsonl"
        # Ids in a file are not to be trusted with a file's name.
        if not ((file == path or is_run_id(run_id)) and file.exists()):
            return None
        found = outline(notes.decode_events(read(file, on_problem=notes)))
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
    from shopfloor.cli.pending_calls import fetch_answered_calls, unread_answer_text

    for run_id, call_id in fetch_answered_calls(args, path):
        step = runs[run_id].outline.open_calls.get(call_id) if run_id in runs else None
        if step is not None and step.asks is not None:
            step.asks = unread_answer_text(step.asks)


class _Run(NamedTuple):
    outline: Outline
    path: Path

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
        parts.append(style.paint(f"run {escape_controls(row.missing_run_id)}: there is no transcript of it", "yellow"))
    if row.again is not None:
        parts.append(style.paint(f"run {escape_controls(row.again)} stands above already", "yellow"))
    return " → ".join(parts)


def _step_label(step: Step, style: Style, run: _Run, called: _Run | None) -> str:
    attended = called if called is not None and not called.outline.is_ended else run
    state = display_status(
        run.outline.state_of(step, called and called.outline), has_active_host=attended.has_active_host
    )
    again = f" (try {step.try_})" if step.try_ > 1 else ""
    name = style.paint(f"{_SIGNS[state]} {one_line(step.path, PREVIEW_CHARS)}{again}", _LOOKS[state])
    kind = "" if step.kind in (step.name, "call_workflow") else f"[{one_line(step.kind, PREVIEW_CHARS)}]"
    head = f"{name} {style.paint(kind, 'dim')}".rstrip()
    texts = (one_line(text or "", PREVIEW_CHARS) for text in (step.asks, step.error))
    return _parts(head, *texts, style.paint(format_duration(step.duration_ms), "dim"))


def _run_label(known: _Run, style: Style) -> str:
    run = known.outline
    state = display_status(run.state, has_active_host=known.has_active_host)
    head = f"{style.paint(f'run {escape_controls(run.run_id[:8])}', 'bold')} {one_line(run.name, PREVIEW_CHARS)}"
    return _parts(
        f"{head} {style.paint(f'{_SIGNS[state]} {state}', _LOOKS[state])}",
        one_line(run.error or run.waits.held or "", PREVIEW_CHARS),
        style.paint(format_duration(run.duration_ms), "dim"),
    )


def _parts(*parts: str) -> str:
    return " · ".join(part for part in parts if part)
