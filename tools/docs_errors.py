"""docs/reference/errors.md: the tree of errors."""

import re
from pathlib import Path

from shopfloor import errors
from shopfloor.errors import ShopfloorError, all_error_types
from tools.docs_markdown import code, fenced, generated, page, section, table
from tools.docs_source import calls, modules

INTRO = """\
Each error has a stable code, an HTTP status and an exit code. The command line prints it to stderr in one line, with a
second line for the hint, if there is one; `--debug` adds the traceback."""

EXAMPLE = """\
error[run_not_found]: no run begins with 'abcd' in /home/ada/.local/share/shopfloor/storage
hint: `last` is the newest run"""

_TREE_LINE = re.compile(r"^ *(?P<guides>[│ ]*[├└]── )?(?P<name>[A-Z]\w+)(?: {2,}(?P<meaning>.+))?$")


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
            "Codes of runs",
            "A run that did not complete has an `error.code` in its transcript: one of the codes above if Shopfloor "
            f"could not continue, or one of {', '.join(code(name) for name in _run_codes())}.",
        ),
    )


def our_errors() -> list[type[ShopfloorError]]:
    """Return the errors of `errors.py`, without classes that other modules derive."""
    return [cls for cls in all_error_types() if cls.__module__ == errors.__name__]


def render_tree() -> list[str]:
    """Return the lines of the tree, with the meaning of each class."""
    return Path(__file__).with_name("errors_tree.txt").read_text(encoding="utf-8").splitlines()


def meanings() -> dict[str, str]:
    """Return the meanings that the tree has beside its classes, by class name."""
    matches = (_TREE_LINE.match(line) for line in render_tree())
    return {match["name"]: match["meaning"] or "" for match in matches if match}


def _meaning(cls: type[ShopfloorError]) -> str:
    """Return the meaning of a class in the tree, or the words of its name if the tree has none."""
    return meanings().get(cls.__name__) or " ".join(re.findall(r"[A-Z][a-z]+", cls.__name__)).lower()


def _run_codes() -> list[str]:
    keywords = (word for path in modules() for call in calls(path, "RunError") for word in call.keywords)
    values = (getattr(word.value, "value", None) for word in keywords if word.arg == "code")
    return sorted({value for value in values if isinstance(value, str)})
