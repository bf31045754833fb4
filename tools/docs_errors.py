"""docs/reference/errors.md: the tree of errors."""

from collections.abc import Iterator

from shopfloor import errors
from shopfloor.errors import ShopfloorError, all_error_types
from tools.docs_markdown import code, fenced, generated, page, section, table
from tools.docs_source import calls, modules, summary

INTRO = """\
Each error has a stable code, an HTTP status and an exit code. The command line prints an error as two lines on stderr;
the second line, the hint, is missing if there is nothing to do. `--debug` adds the traceback."""

EXAMPLE = """\
error[run_not_found]: no run begins with 'abcd' in /home/ada/.local/share/shopfloor/storage
hint: `last` is the newest run"""


def errors_page() -> str:
    rows = [(code(cls.code), cls.__name__, str(cls.status), str(cls.exit_code), _meaning(cls)) for cls in our_errors()]
    return page(
        "Errors",
        generated("`errors.py`"),
        INTRO,
        fenced("text", EXAMPLE),
        section("The tree", fenced("text", "\n".join(render_tree()))),
        section("The codes", table(("code", "class", "HTTP", "exit", "meaning"), rows)),
        section(
            "Errors that need a person",
            "Only a person can remove the cause of these; a root run that failed with one waits for a person, as "
            f"`shopfloor waiting` shows: {', '.join(code(cls.code) for cls in our_errors() if cls.needs_person)}.",
        ),
        section(
            "Codes of runs",
            "A run that did not complete has an `error.code` in its transcript: one of the codes above, "
            f"or one of {', '.join(code(name) for name in _run_codes())}.",
        ),
    )


def our_errors() -> list[type[ShopfloorError]]:
    """Return the classes of `errors.py`, without subclasses that others may have defined."""
    return [cls for cls in all_error_types() if cls.__module__ == errors.__name__]


def render_tree() -> list[str]:
    """Return the lines of the tree, each class with its docstring."""
    drawn = list(_branches(ShopfloorError))
    width = max(len(guides) + len(cls.__name__) for guides, cls in drawn) + 2
    return [f"{guides + cls.__name__:<{width}}{_meaning(cls)}" for guides, cls in drawn]


def _branches(cls: type[ShopfloorError], own: str = "", below: str = "") -> Iterator[tuple[str, type[ShopfloorError]]]:
    yield own, cls
    children = [child for child in cls.__subclasses__() if child in our_errors()]
    for child in children:
        is_last = child is children[-1]
        yield from _branches(child, below + ("└── " if is_last else "├── "), below + ("    " if is_last else "│   "))


def _meaning(cls: type[ShopfloorError]) -> str:
    return summary(cls).removesuffix(".")


def _run_codes() -> list[str]:
    keywords = (word for path in modules() for call in calls(path, "RunError") for word in call.keywords)
    values = (getattr(word.value, "value", None) for word in keywords if word.arg == "code")
    return sorted({value for value in values if isinstance(value, str)})
