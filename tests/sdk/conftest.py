"""Fixtures for tests of the SDK."""

from tests.cli.conftest import env, shopfloor, start, transcripts
from tests.model_server.fixtures import model_server, model_server_thread

__all__ = ["env", "model_server", "model_server_thread", "shopfloor", "start", "transcripts"]
