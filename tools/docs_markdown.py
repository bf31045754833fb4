"""Elements of Markdown."""

from collections.abc import Iterable, Sequence


def page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", *(part for part in parts if part))) + "\n"


def section(title: str, *parts: str, level: int = 2) -> str:
    return "\n\n".join((f"{'#' * level} {title}", *(part for part in parts if part)))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    # An unescaped bar or line break would end the cell.
    return text.replace("|", "\\|").replace("\n", " ")


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def code(text: str) -> str:
    return f"`{text}`"


def generated(source: str) -> str:
    return f"Generated from {source} by `make docs`; do not edit by hand."
