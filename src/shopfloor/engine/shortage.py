"""Telling a process that is short of something for now from a defect of the program."""

from __future__ import annotations

import errno
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, cast

from shopfloor.errors import ShopfloorError

_log = logging.getLogger("shopfloor.engine")
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.ENOBUFS})


def is_shortage(error: BaseException) -> bool:
    """Whether the process had too little memory, threads or descriptors; of a group, whether all are that."""
    match error:
        case BaseExceptionGroup():
            return all(is_shortage(one) for one in error.exceptions)
        case MemoryError():
            return True
        case OSError():
            return error.errno in _SHORT
        case RuntimeError():
            # Python has no class for it.
            return str(error) == "can't start new thread"
        case _:
            return False


def is_temporary(error: BaseException) -> bool:
    """Whether the next look may go better, so that an endless loop goes on; of a group, whether all are that."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_temporary(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, ShopfloorError | OSError) or is_shortage(error)


@contextmanager
def tolerating(failed: str) -> Generator[None]:
    """Log a temporary error, with what failed, and go on; raise any other."""
    try:
        yield
    except Exception as error:
        if not is_temporary(error):
            raise
        _log.warning("%s: %s", failed, error)
