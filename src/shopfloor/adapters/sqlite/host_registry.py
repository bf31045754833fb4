"""The records of hosts in SQLite, in the database of a store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shopfloor.adapters.sqlite.fleet_events import insert_fleet_events
from shopfloor.decoding import json_decoder
from shopfloor.ports import DrainRequest, HostLoss, HostRecord, OfflineReason
from shopfloor.views import FleetEvent

if TYPE_CHECKING:
    from shopfloor.adapters.sqlite.store import SqliteStore

_log = logging.getLogger("shopfloor.fleet")
_COLUMNS: Final = "id, record, drain, loss, offline_at"
_SAVE: Final = "INSERT INTO hosts (id, record) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET record = excluded.record"
_DRAIN: Final = "UPDATE hosts SET drain = ? WHERE id = ? AND loss IS NULL"
_LOSS: Final = "UPDATE hosts SET loss = ? WHERE id = ? AND loss IS NULL"
_OFFLINE: Final = "UPDATE hosts SET offline_at = ? WHERE id = ? AND offline_at IS NULL"
_ORPHANS: Final = (
    "SELECT num, id FROM worker_runs WHERE completed_at IS NULL AND host = ? AND last_seq > 0 AND outside = 0"
    " UNION SELECT run.num, run.id FROM dispatches JOIN worker_runs AS run ON run.id = dispatches.run_id"
    " WHERE dispatches.host = ? ORDER BY 1"
)
_FORGET: Final = (
    "DELETE FROM hosts WHERE offline_at < ? OR (offline_at IS NOT NULL AND num NOT IN"
    " (SELECT num FROM hosts WHERE offline_at IS NOT NULL ORDER BY num DESC LIMIT ?))"
)
_encode = msgspec.json.Encoder().encode
_decode = json_decoder(HostRecord).decode
_decode_drain = json_decoder(DrainRequest).decode
_decode_loss = json_decoder(HostLoss).decode


class SqliteHostRegistry:
    """Implements `HostRegistry`."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._skipped: set[str] = set()
        """The hosts whose record cannot be read, each of which is logged once."""

    async def save(self, record: HostRecord, events: Sequence[FleetEvent] = ()) -> None:
        def job(connection: Connection) -> None:
            connection.execute(_SAVE, (record.id, _encode(record)))
            self._insert(connection, events)

        await self._store.write(job)

    async def find(self, host: str) -> HostRecord | None:
        query = f"SELECT {_COLUMNS} FROM hosts WHERE id = ?"
        found = await self._store.read(lambda connection: connection.execute(query, (host,)).fetchone())
        return None if found is None else self._build_record(found)

    async def all(self) -> list[HostRecord]:
        query = f"SELECT {_COLUMNS} FROM hosts ORDER BY num"
        found = await self._store.read(lambda connection: connection.execute(query).fetchall())
        return [record for row in found if (record := self._build_record(row)) is not None]

    async def request_drain(self, host: str, request: DrainRequest | None) -> bool:
        body = None if request is None else _encode(request)
        return await self._store.write(lambda connection: bool(connection.execute(_DRAIN, (body, host)).rowcount))

    async def record_loss(self, host: str, *, at: str, reason: OfflineReason) -> bool:
        def job(connection: Connection) -> bool:
            orphans = tuple(run_id for _, run_id in connection.execute(_ORPHANS, (host, host)))
            loss = HostLoss(at=at, reason=reason, orphans=orphans)
            return bool(connection.execute(_LOSS, (_encode(loss), host)).rowcount)

        return await self._store.write(job)

    async def mark_offline(self, host: str, at: str, events: Sequence[FleetEvent]) -> bool:
        def job(connection: Connection) -> bool:
            is_first = bool(connection.execute(_OFFLINE, (at, host)).rowcount)
            if is_first:
                self._insert(connection, events)
            return is_first

        return await self._store.write(job)

    async def forget_offline(self, before: str, *, keep: int) -> None:
        await self._store.write(lambda connection: connection.execute(_FORGET, (before, keep)).close())

    def _insert(self, connection: Connection, events: Sequence[FleetEvent]) -> None:
        insert_fleet_events(connection, events, self._store.fleet_events_kept)

    def _build_record(self, row: tuple[Any, ...]) -> HostRecord | None:
        """Return the record of a host; None if it cannot be decoded, so that the other hosts go on."""
        host, record, drain, loss, offline_at = row
        try:
            return msgspec.structs.replace(
                _decode(record),
                drain=None if drain is None else _decode_drain(drain),
                loss=None if loss is None else _decode_loss(loss),
                offline_at=offline_at,
            )
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if host not in self._skipped:
                self._skipped.add(host)
                _log.warning("the record of the host %s cannot be read and is skipped: %s", host, error)
            return None
