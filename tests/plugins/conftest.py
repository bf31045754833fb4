"""Started plugins, with a model that follows a script."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.model_server.fixtures import model_server, model_server_thread
from tests.model_server.server import ModelServer
from tests.plugins.plugin_process import PluginProcess

__all__ = ["model_server", "model_server_thread", "researcher", "shared_researcher"]


@pytest.fixture
def researcher(model_server: ModelServer, tmp_path: Path) -> Iterator[PluginProcess]:
    """A copy of the researcher, not started yet."""
    plugin = PluginProcess.copy_of("researcher", tmp_path, model_server)
    yield plugin
    plugin.stop()


@pytest.fixture(scope="module")
def shared_researcher(
    model_server_thread: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PluginProcess]:
    """A researcher that is started once for tests which leave nothing behind."""
    plugin = PluginProcess.copy_of("researcher", tmp_path_factory.mktemp("shared"), model_server_thread)
    yield plugin.start()
    plugin.stop()
