"""The HTTP face: lists, details, logs and streams of runs, for whoever has a token. It holds no state."""

from shopfloor.server.app import create_app
from shopfloor.server.services import Services
from shopfloor.server.serving import serve
from shopfloor.server.tokens import Role, Tokens

__all__ = ["Role", "Services", "Tokens", "create_app", "serve"]
