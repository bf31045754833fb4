"""Fixtures and settings for all tests."""

import functools
import os
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from tests.sample_events import RUN_ID

from shopfloor.record import Recorder, Storage

# In CI the cases are the same every time, so that no merge fails at random; `make test-long` searches for new cases.
settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=2_000, deadline=None, print_blob=True)
settings.load_profile("long" if os.environ.get("SHOPFLOOR_TEST_LONG") == "1" else "ci")

# Loading the certificates of the system takes 25 ms of processor time, and every HTTP client does it, although tests use
# plain HTTP. Load them once.
ssl.create_default_context = functools.cache(ssl.create_default_context)

# `nohup` ignores HUP, and a shell's background job (`make test &`) ignores INT and QUIT. Child processes of the tests
# would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Storage:
    """An empty storage, which `SHOPFLOOR_STORAGE` also names."""
    root = tmp_path / "storage"
    monkeypatch.setenv("SHOPFLOOR_STORAGE", str(root))
    return Storage(root)


@pytest.fixture
def log_path(storage: Storage) -> Path:
    """The path of the log of `RUN_ID`, which may not exist yet."""
    return storage.log_path(RUN_ID)


@pytest.fixture
def recorder(log_path: Path) -> Iterator[Recorder]:
    """A recorder for the log of `RUN_ID`, with nothing written yet."""
    with Recorder(log_path, RUN_ID) as writer:
        yield writer
