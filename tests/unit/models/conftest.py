"""The scripted model server."""

from tests.model_server.fixtures import model_server, model_server_thread

__all__ = ["model_server", "model_server_thread"]
