"""Installations for the tests of MCP: one for all tests of a module, and an empty one for a single test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.mcp.installation import Installation


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation whose server is up. Tests share its runs."""
    installation = Installation(tmp_path_factory.mktemp("mcp"))
    installation.up()
    yield installation
    installation.close()


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation without a server."""
    installed = Installation(tmp_path)
    yield installed
    installed.close()
