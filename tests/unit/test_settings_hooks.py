"""The hooks of the settings file."""

from __future__ import annotations

from pathlib import Path

from shopfloor.record import Storage
from shopfloor.wiring.hooks import settings_hooks

_MAIL = "{command: mail, on: [question]}"
_CHAT = "{command: chat, min_seconds: 60}"


def commands_by_id(storage: Storage, *entries: str) -> dict[str, str | None]:
    storage.settings.write_text(f"notify: [{', '.join(entries)}]\n")
    return {hook.id: hook.command for hook in settings_hooks(storage, notify_seconds=None)}


def test_the_id_of_a_command_does_not_depend_on_its_position(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    before = commands_by_id(storage, _MAIL, _CHAT)
    assert len(before) == 2
    assert commands_by_id(storage, _CHAT, "{command: other}", _MAIL).items() >= before.items()


def test_a_changed_entry_has_another_id(tmp_path: Path) -> None:
    storage = Storage(tmp_path)
    ids = [
        *commands_by_id(storage, _MAIL),
        *commands_by_id(storage, "{command: post, on: [question]}"),
        *commands_by_id(storage, "{command: mail, on: [outcome]}"),
        *commands_by_id(storage, "{command: mail, on: [question], min_seconds: 1}"),
    ]
    assert len(set(ids)) == 4
