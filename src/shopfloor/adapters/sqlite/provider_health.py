"""Records of providers in SQLite, one row of JSON each: there are about ten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from sqlite3 import Connection
from typing import TYPE_CHECKING, Final

import msgspec

from shopfloor.adapters.sqlite.fleet_events import insert_fleet_events
from shopfloor.decoding import json_decoder
from shopfloor.ports import Change, ProviderRecord, observe
from shopfloor.views import ProviderObservation

if TYPE_CHECKING:
    from shopfloor.adapters.sqlite.store import SqliteStore

_READ: Final = "SELECT name, record FROM providers ORDER BY name"
_WRITE: Final = "INSERT OR REPLACE INTO providers (name, record) VALUES (?, ?)"
_encode = msgspec.json.Encoder().encode
_decode = json_decoder(ProviderRecord).decode


def read_records(connection: Connection) -> dict[str, ProviderRecord]:
    """Return all records. A record of another version that cannot be read counts as unknown."""
    records: dict[str, ProviderRecord] = {}
    for name, record in connection.execute(_READ):
        try:
            records[name] = _decode(record)
        except msgspec.MsgspecError:
            continue
    return records


def write_records(connection: Connection, records: Iterable[ProviderRecord]) -> None:
    """Store records."""
    connection.executemany(_WRITE, [(record.name, _encode(record).decode()) for record in records])


def store_observations(connection: Connection, observations: Sequence[ProviderObservation]) -> None:
    """Add observations of runs to the records."""
    if observations:
        write_records(connection, observe(read_records(connection), observations).values())


class SqliteProviderHealth:
    """Implements `ProviderHealth` in the database of a store."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def read(self) -> dict[str, ProviderRecord]:
        return await self._store.read(read_records)

    async def update(self, change: Change) -> bool:
        kept = self._store.fleet_events_kept

        def job(connection: Connection) -> bool:
            changed, events = change(read_records(connection))
            write_records(connection, changed)
            insert_fleet_events(connection, events, kept)
            return bool(events)

        return await self._store.write(job)
