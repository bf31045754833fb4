"""Shortage of a resource is distinguished from a defect."""

import errno

import pytest

from shopfloor.engine.error_mapping import is_shortage, is_temporary
from shopfloor.errors import StepFailed

SHORT = [
    MemoryError(),
    OSError(errno.EMFILE, "Too many open files"),
    RuntimeError("can't start new thread"),
    ExceptionGroup("", [MemoryError(), ExceptionGroup("", [OSError(errno.ENOMEM, "")])]),
]
DEFECTS = [RuntimeError("another"), ValueError(), ExceptionGroup("", [MemoryError(), KeyError()])]
OTHERS = [OSError(errno.EIO, "I/O error"), StepFailed("x")]


@pytest.mark.parametrize("error", SHORT, ids=repr)
def test_a_shortage_is_temporary(error: Exception):
    assert is_shortage(error)
    assert is_temporary(error)


@pytest.mark.parametrize("error", DEFECTS, ids=repr)
def test_a_defect_is_neither(error: Exception):
    assert not is_shortage(error)
    assert not is_temporary(error)


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_errors_of_storage_and_engine_are_temporary_and_no_shortage(error: Exception):
    assert not is_shortage(error)
    assert is_temporary(error)
