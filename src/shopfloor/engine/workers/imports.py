"""Python that a worker names, loaded: `package.module:name`, or `file.py:name`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import linecache
import re
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from shopfloor.engine.workers.problems import did_you_mean
from shopfloor.errors import InvalidWorker


def load_object(name: str) -> Any:
    """The object of that name. Raises `InvalidWorker` that says what is not there."""
    module_name, colon, path = name.rpartition(":")
    if not colon or not module_name or not path:
        raise InvalidWorker(f"`{name}` is not `package.module:name`", hint="as in `my_tools.search:web_search`")
    found: Any = load_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            public = [known for known in dir(found) if not known.startswith("_")]
            raise InvalidWorker(f"`{module_name}` has no `{part}`", hint=did_you_mean(part, public))
        found = getattr(found, part)
    return found


def load_module(name: str) -> ModuleType:
    """A module by its name, or by its file where the name ends in `.py`."""
    return load_file(Path(name)) if name.endswith(".py") else _imported(name)


def _imported(name: str) -> ModuleType:
    interrupts: list[int] = []
    try:
        with _noting_interrupts(interrupts):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidWorker(
                f"there is no module `{name}`", hint="install it, set PYTHONPATH, or name a file: `path/to/file.py`"
            ) from error
        raise _failed(name, error) from error
    except BaseException as error:
        if interrupts:
            raise
        raise _failed(name, error) from error


@contextmanager
def _noting_interrupts(interrupts: list[int]) -> Generator[None]:
    """Note each Ctrl-C in the list: code that raises `KeyboardInterrupt` by itself is merely broken."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def load_file(path: Path) -> ModuleType:
    """A module from its file, as the file is now."""
    path = path.expanduser().absolute()
    # The path makes the name, so that two files called worker.py are two modules, and the same one keeps its name.
    stem = re.sub(r"\W", "_", f"{path.parent.name}_{path.stem}")
    name = f"shopfloor_{stem}_{hashlib.sha256(str(path).encode(errors='surrogateescape')).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidWorker(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    linecache.checkcache(str(path))
    interrupts: list[int] = []
    try:
        # Not by its cached bytecode: that is found by whole seconds, and a file may change twice in one.
        with _noting_interrupts(interrupts):
            exec(compile(path.read_bytes(), path, "exec"), module.__dict__)  # noqa: S102 - a worker is code to be run
    except BaseException as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        if interrupts:
            raise
        raise _failed(f"{path}{_line_in(path, error)}", error) from error
    return module


def _line_in(path: Path, error: BaseException) -> str:
    """The line of that file at which it went wrong."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f":{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


def _failed(name: str, error: BaseException) -> InvalidWorker:
    return InvalidWorker(f"`{name}` cannot be loaded: {type(error).__name__}: {error}", hint="python shows where")
