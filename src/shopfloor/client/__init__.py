"""Talking to a server: found by `$SHOPFLOOR_URL` or in the storage folder."""

from shopfloor.client.address import Address, find_server
from shopfloor.client.api import Api

__all__ = ["Address", "Api", "find_server"]
