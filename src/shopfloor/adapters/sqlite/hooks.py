"""Hooks and their deliveries in SQLite."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Final

import msgspec

from shopfloor.adapters.limits import HOOK_PENDING_MAX
from shopfloor.adapters.sqlite.intake import IntakeLine, hook_line, removed_hook_line
from shopfloor.adapters.sqlite.queries import placeholders
from shopfloor.decoding import json_decoder
from shopfloor.log import now
from shopfloor.ports import Delivery, Hook, HookStatus
from shopfloor.views import Notification, encode_cloud_event

if TYPE_CHECKING:
    from shopfloor.adapters.sqlite.store import SqliteStore

_encode = msgspec.json.Encoder().encode
_decode = json_decoder(Hook).decode
_ALL: Final = (
    "SELECT body, (SELECT count(*) FROM deliveries WHERE hook_id = hooks.id), delivered, dropped, last_error, last_at"
    " FROM hooks ORDER BY num"
)
_UPSERT: Final = "INSERT INTO hooks (id, body) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET body = excluded.body"
_DELETE: Final = "DELETE FROM hooks WHERE id = ?"
_KEPT: Final = "FROM hooks WHERE json_extract(CAST(body AS TEXT), '$.origin') IN ('api', 'run')"
"""The hooks that the intake has too. Each server makes the others anew when it starts."""
COUNT_KEPT_HOOKS: Final = f"SELECT count(*) {_KEPT}"
_DELETE_OF_RUN: Final = (
    "DELETE FROM deliveries WHERE num IN (SELECT pending.num FROM hooks CROSS JOIN deliveries AS pending"
    # The id of an event starts with the run and a dot. The join searches the index of each hook.
    " ON pending.hook_id = hooks.id AND pending.event_id >= ?1 || '.' AND pending.event_id < ?1 || '/')"
)
DELETE_HOOKS_OF_RUN: Final = (
    "DELETE FROM hooks WHERE json_extract(CAST(body AS TEXT), '$.run_id') = ?1",
    _DELETE_OF_RUN,
)
"""Delete the hooks of one run, and the deliveries about it of all hooks."""
_INSERT: Final = (
    "INSERT INTO deliveries (hook_id, event_id, body, next_at, expires_at) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (hook_id, event_id) DO NOTHING"
)
_TRIM: Final = (
    "DELETE FROM deliveries WHERE hook_id = ?1 AND num <="
    " (SELECT num FROM deliveries WHERE hook_id = ?1 ORDER BY num DESC LIMIT 1 OFFSET ?2)"
)
_DUE: Final = (
    "SELECT deliveries.num, hooks.body, event_id, deliveries.body, tries, expires_at FROM deliveries"
    " JOIN hooks ON hooks.id = hook_id WHERE deliveries.num IN"
    # The numbers are chosen in an index, so that only the bodies that are returned are read.
    " (SELECT pending.num FROM hooks AS receiver CROSS JOIN deliveries AS pending ON pending.hook_id = receiver.id"
    " WHERE receiver.id NOT IN {hooks}"
    " AND (SELECT next_at FROM deliveries WHERE hook_id = receiver.id ORDER BY num LIMIT 1) <= ?"
    " ORDER BY pending.num LIMIT ?) ORDER BY deliveries.num"
)


def due_query(now: str, *, limit: int, exclude: Collection[str] = ()) -> tuple[str, list[Any]]:
    """Return the query of `SqliteHooks.due`, and its parameters."""
    ids = [*exclude]
    return _DUE.format(hooks=placeholders(ids)), [*ids, now, limit]


def insert_deliveries(connection: Connection, notifications: Sequence[Notification]) -> None:
    """Store a delivery for each hook that wants a notification. Costs nothing if there is nothing to store."""
    if not notifications:
        return
    for (body,) in connection.execute("SELECT body FROM hooks ORDER BY num").fetchall():
        _enqueue(connection, _decode(body), notifications)


def _enqueue(connection: Connection, hook: Hook, notifications: Sequence[Notification]) -> None:
    at, oldest, expires_at = now(), now(-hook.retry_seconds), now(hook.retry_seconds)
    for notification in notifications:
        if not hook.matches(notification):
            continue
        if notification.at >= oldest:
            body = encode_cloud_event(notification)
            inserted = connection.execute(_INSERT, (hook.id, notification.id, body, at, expires_at)).rowcount
            dropped = connection.execute(_TRIM, (hook.id, HOOK_PENDING_MAX)).rowcount if inserted else 0
            if dropped:
                connection.execute("UPDATE hooks SET dropped = dropped + ? WHERE id = ?", (dropped, hook.id))
        elif hook.origin == "run":
            # Without a line in the intake: if the database is lost, this is repeated.
            connection.execute(_DELETE, (hook.id,))


def kept_hook_lines(connection: Connection) -> Iterator[bytes]:
    """Iterate over the intake lines of the hooks that have one."""
    for (body,) in connection.execute(f"SELECT body {_KEPT} ORDER BY num"):
        yield hook_line(body)


def restore_hook(connection: Connection, line: IntakeLine) -> None:
    """Add or remove the hook of an intake line, if it has one."""
    if line.hook is not None:
        connection.execute(_UPSERT, (line.hook.id, _encode(line.hook)))
    if line.removed_hook is not None:
        connection.execute(_DELETE, (line.removed_hook,))


class SqliteHooks:
    """Implements `Hooks` in the database of a store."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store

    async def add(self, hook: Hook) -> None:
        def job(connection: Connection) -> None:
            found = connection.execute("SELECT body FROM hooks WHERE id = ?", (hook.id,)).fetchone()
            kept = msgspec.structs.replace(hook, created_at=_decode(found[0]).created_at) if found else hook
            body = _encode(kept)
            connection.execute(_UPSERT, (kept.id, body))
            if hook.origin in {"api", "run"}:
                self._store.intake.add(hook_line(body))

        await self._store.write(job)

    async def remove(self, hook_id: str) -> bool:
        return await self._store.write(lambda connection: self._delete(connection, hook_id))

    def _delete(self, connection: Connection, hook_id: str) -> bool:
        if not connection.execute(_DELETE, (hook_id,)).rowcount:
            return False
        self._store.intake.add(removed_hook_line(hook_id))
        return True

    async def all(self) -> list[HookStatus]:
        def job(connection: Connection) -> list[HookStatus]:
            return [
                HookStatus(
                    hook=_decode(body),
                    pending=pending,
                    delivered=delivered,
                    dropped=dropped,
                    last_error=last_error,
                    last_at=last_at,
                )
                for body, pending, delivered, dropped, last_error, last_at in connection.execute(_ALL)
            ]

        return await self._store.read(job)

    async def enqueue(self, hook_id: str, notifications: Sequence[Notification]) -> None:
        def job(connection: Connection) -> None:
            for (body,) in connection.execute("SELECT body FROM hooks WHERE id = ?", (hook_id,)).fetchall():
                _enqueue(connection, _decode(body), notifications)

        await self._store.write(job)

    async def due(self, now: str, *, limit: int, exclude: Collection[str] = ()) -> list[Delivery]:
        query, parameters = due_query(now, limit=limit, exclude=exclude)

        def job(connection: Connection) -> list[Delivery]:
            return [
                Delivery(
                    number=number, hook=_decode(hook), event_id=event_id, body=body, tries=tries, expires_at=expires_at
                )
                for number, hook, event_id, body, tries, expires_at in connection.execute(query, parameters)
            ]

        return await self._store.read(job)

    async def complete(self, delivery: Delivery, *, at: str, error: str | None = None) -> None:
        hook = delivery.hook

        def job(connection: Connection) -> None:
            connection.execute("DELETE FROM deliveries WHERE num = ?", (delivery.number,))
            text = (
                "UPDATE hooks SET delivered = delivered + ?, dropped = dropped + ?, last_error = ?, last_at = ?"
                " WHERE id = ?"
            )
            connection.execute(text, (int(error is None), int(error is not None), error, at, hook.id))
            if hook.origin == "run":
                self._delete(connection, hook.id)

        await self._store.write(job)

    async def drop_expired(self, hook: Hook, before: str) -> None:
        def job(connection: Connection) -> None:
            text = "DELETE FROM deliveries WHERE hook_id = ? AND expires_at < ?"
            dropped = connection.execute(text, (hook.id, before)).rowcount
            connection.execute("UPDATE hooks SET dropped = dropped + ? WHERE id = ?", (dropped, hook.id))
            if dropped and hook.origin == "run":
                self._delete(connection, hook.id)

        await self._store.write(job)

    async def postpone(self, delivery: Delivery, *, at: str, until: str, error: str) -> None:
        def job(connection: Connection) -> None:
            text = "UPDATE deliveries SET tries = tries + 1, next_at = ? WHERE num = ?"
            connection.execute(text, (until, delivery.number))
            text = "UPDATE hooks SET last_error = ?, last_at = ? WHERE id = ?"
            connection.execute(text, (error, at, delivery.hook.id))

        await self._store.write(job)
