"""A worker's definition as people read it: what it takes, and its steps as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shopfloor.cli.style import Style, one_line, safe
from shopfloor.engine import Definition, InputField, ToolDefinition, is_required
from shopfloor.limits import PREVIEW_CHARS

_SAID = ("model", "thread", "prompt", "tool", "worker", "kind", "command", "each", "output")
"""What of a step is said beside its name."""


def lines_of(definition: Definition, style: Style, *, origin: str) -> Iterator[str]:
    title = f" · {safe(definition.name)}" if definition.name else ""
    yield f"{style.paint(safe(definition.slug), 'bold')}{title} {style.paint(f'({safe(origin)})', 'dim')}"
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
    return f"{safe(name)}  {field.type}, {how}{said}"


def _tool(name: str, tool: ToolDefinition) -> str:
    whose = f"by {tool.handler}" if tool.handler else "by whoever watches the run"
    return f"{safe(name)}  {one_line(tool.description, PREVIEW_CHARS)} ({safe(whose)})"


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
