"""The scripted model server, for those who ask models."""

from tests.model_server.fixtures import model_server, model_server_thread

__all__ = ["model_server", "model_server_thread"]
