"""Hooks that come with a process or a run: those of the settings file, of the desktop, and of `--on-outcome`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shopfloor.limits import DESKTOP_MIN_SECONDS, DESKTOP_RETRY_SECONDS, HOOK_COMMAND_SECONDS
from shopfloor.log import now
from shopfloor.ports import Hook, Hooks, SendNotification
from shopfloor.record import Storage, is_locked
from shopfloor.wiring.settings import NotifyCommand, load_settings

if TYPE_CHECKING:
    from shopfloor.views import Notification

_DESKTOP_ID = "desktop"
_DIGEST_CHARS = 8


def settings_hooks(storage: Storage, *, notify_seconds: float | None) -> list[Hook]:
    """Return the hooks of the settings file, and that of the desktop if it is wanted and can be had.

    Raises UsageError if the settings file is not valid.
    """
    hooks = [
        Hook(
            id=_settings_id(entry),
            origin="settings",
            created_at=now(),
            command=entry.command,
            cwd=os.fspath(storage.root),
            kinds=entry.on,
            min_seconds=entry.min_seconds,
        )
        for entry in load_settings(storage.settings).notify
    ]
    desktop = None if notify_seconds is None else desktop_hook(notify_seconds)
    return [*hooks, desktop] if desktop else hooks


def _settings_id(entry: NotifyCommand) -> str:
    """Return an id of what the entry says, not of its position: pending deliveries stay with their command."""
    return f"settings-{hashlib.sha256(msgspec.json.encode(entry)).hexdigest()[:_DIGEST_CHARS]}"


def desktop_hook(min_seconds: float = DESKTOP_MIN_SECONDS) -> Hook | None:
    """Return the hook that shows notifications on this desktop; None if it has no command for that."""
    from shopfloor.adapters.local import desktop_command

    command = desktop_command()
    if command is None:
        return None
    return Hook(
        id=_DESKTOP_ID,
        origin="desktop",
        created_at=now(),
        command=command,
        min_seconds=min_seconds,
        retry_seconds=DESKTOP_RETRY_SECONDS,
    )


async def update_own_hooks(hooks: Hooks, own: list[Hook]) -> None:
    """Store the hooks of this process, and remove those of an earlier one that it does not have."""
    ids = {hook.id for hook in own}
    for status in await hooks.all():
        if status.hook.origin in {"settings", "desktop"} and status.hook.id not in ids:
            await hooks.remove(status.hook.id)
    for hook in own:
        await hooks.add(hook)


async def remove_desktop_hook(hooks: Hooks) -> None:
    """Remove the hook of the desktop, if there is one. Its pending deliveries would be shown too late."""
    await hooks.remove(_DESKTOP_ID)


async def has_desktop_server(storage: Storage) -> bool:
    """Return whether a server is running on this storage that shows notifications on its desktop."""
    from shopfloor.wiring.storage import local_backend

    if not is_locked(storage.server_lock):
        return False
    async with local_backend(storage) as backend:
        return any(status.hook.id == _DESKTOP_ID for status in await backend.hooks.all())


async def deliver_notifications(hooks: Hooks, send: SendNotification) -> None:
    """Deliver notifications until cancelled."""
    from shopfloor.engine import HookDelivery

    await HookDelivery(hooks, send).run()


async def add_run_hook(storage: Storage, run_id: str, command: str) -> None:
    """Let the server of this storage run a command after the outcome of a run, in the current folder."""
    from shopfloor.views import outcome_notification
    from shopfloor.wiring.storage import local_backend

    hook = Hook(
        id=f"run-{run_id}",
        origin="run",
        created_at=now(),
        command=command,
        cwd=os.fspath(Path.cwd()),
        kinds=("outcome",),
        run_id=run_id,
    )
    async with local_backend(storage) as backend:
        await backend.hooks.add(hook)
        # The run may have ended before the hook was stored.
        item = await backend.store.get_run(run_id)
        if item is not None and item.row.is_ended:
            await backend.hooks.enqueue(hook.id, [outcome_notification(item.row)])


async def run_hook_command(command: str, notification: Notification, *, cwd: str | None = None) -> str | None:
    """Run a command for a notification in this process, and return what went wrong. Its output goes to stderr."""
    from shopfloor.adapters.local import NotificationSender
    from shopfloor.views import encode_cloud_event

    hook = Hook(id="run", origin="run", created_at="", command=command, cwd=cwd)
    send = NotificationSender(command_seconds=HOOK_COMMAND_SECONDS, shows_output=True)
    return await send(hook, notification.id, encode_cloud_event(notification))
