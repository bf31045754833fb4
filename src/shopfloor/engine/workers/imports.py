"""Loading of Python objects by name: `package.module:name`, or `file.py:name`."""

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
    """Return the object with this name. Raises `InvalidWorker` that names the missing part."""
    module_name, colon, path = name.rpartition(":")
    if not colon or not module_name or not path:
        raise InvalidWorker(f"`{name}` is not `package.module:name`", hint="example: `my_tools.search:web_search`")
    found: Any = load_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            public = [name for name in dir(found) if not name.startswith("_")]
            raise InvalidWorker(f"`{module_name}` has no `{part}`", hint=did_you_mean(part, public))
        found = getattr(found, part)
    return found


def load_module(name: str) -> ModuleType:
    """Return a module by its name, or by its file if the name ends in `.py`."""
    return load_file(Path(name)) if name.endswith(".py") else _import_module(name)


def _import_module(name: str) -> ModuleType:
    interrupts: list[int] = []
    try:
        with _record_interrupts(interrupts):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidWorker(
                f"there is no module `{name}`", hint="install it, set PYTHONPATH, or name a file: `path/to/file.py`"
            ) from error
        raise _load_error(name, error) from error
    except BaseException as error:
        if interrupts:
            raise
        raise _load_error(name, error) from error


@contextmanager
def _record_interrupts(interrupts: list[int]) -> Generator[None]:
    """Append each Ctrl-C to the list, to tell it from a `KeyboardInterrupt` that the loaded code raises itself."""
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
    """Return a module from its file, in the file's current state."""
    path = path.expanduser().absolute()
    # The name contains a hash of the path: two files called worker.py are two modules, and the same file keeps its
    # name.
    stem = re.sub(r"\W", "_", f"{path.parent.name}_{path.stem}")
    name = f"shopfloor_{stem}_{hashlib.sha256(str(path).encode(errors='surrogateescape')).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidWorker(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    previous = sys.modules.get(name)
    sys.modules[name] = module
    linecache.checkcache(str(path))
    interrupts: list[int] = []
    try:
        # Do not use cached bytecode: it is matched by whole seconds, and a file may change twice in one second.
        with _record_interrupts(interrupts):
            exec(compile(path.read_bytes(), path, "exec"), module.__dict__)  # noqa: S102 - a worker is code to be run
    except BaseException as error:
        if previous is None:
            del sys.modules[name]
        else:
            sys.modules[name] = previous
        if interrupts:
            raise
        raise _load_error(f"{path}{_error_line(path, error)}", error) from error
    return module


def _error_line(path: Path, error: BaseException) -> str:
    """Return `:` and the line of the file at which the error occurred."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f":{error.lineno}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""


def _load_error(name: str, error: BaseException) -> InvalidWorker:
    return InvalidWorker(
        f"`{name}` cannot be loaded: {type(error).__name__}: {error}", hint="import it in Python to see the traceback"
    )
