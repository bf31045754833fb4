"""Storages that others can write or whose database is damaged: each is refused with a hint."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from shopfloor.errors import StorageUnsafe
from shopfloor.record import require_private_folder

EVERYBODY = 0o777
NOBODY = 65534
COMMANDS = [("list",), ("up", "--port", "0"), ("rebuild",), ("dispatch", "hello")]


@pytest.mark.req("SF-10")
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_world_writable_storage_is_refused(shopfloor: Cli, env: dict[str, str], words: tuple[str, ...]) -> None:
    folder = Path(env["SHOPFLOOR_STORAGE"])
    folder.mkdir()
    folder.chmod(EVERYBODY)
    refused = shopfloor(*words)
    assert (refused.returncode, refused.stdout) == (6, "")
    assert "error[storage_unsafe]" in refused.stderr
    assert f"chmod go-w {folder}" in refused.stderr
    assert not (folder / "tokens.json").exists()


@pytest.mark.req("SF-10")
@pytest.mark.parametrize(
    ("mode", "group", "is_refused"),
    [(0o700, None, False), (0o755, None, False), (0o770, NOBODY, True), (0o702, None, True), (0o1777, None, True)],
)
def test_who_may_write_a_storage(tmp_path: Path, mode: int, group: int | None, is_refused: bool) -> None:
    folder = tmp_path / "storage"
    folder.mkdir()
    if group is not None and os.geteuid() == 0:
        os.chown(folder, -1, group)
    folder.chmod(mode)
    if is_refused:
        with pytest.raises(StorageUnsafe, match="can be written by"):
            require_private_folder(folder)
    else:
        require_private_folder(folder)


@pytest.mark.req("SF-9")
def test_a_damaged_database_is_an_error_that_says_what_to_do_and_rebuild_does_it(
    shopfloor: Cli, env: dict[str, str]
) -> None:
    database = Path(env["SHOPFLOOR_STORAGE"], "shopfloor.db")
    assert shopfloor("run", "--command", "echo kept").returncode == 0
    assert "echo kept" in shopfloor("list").stdout
    damaged = b"words" * 1_000
    database.write_bytes(damaged)
    for words in (("list",), ("up", "--port", "0")):
        refused = shopfloor(*words)
        assert refused.returncode == 6
        assert "error[database_damaged]" in refused.stderr
        assert "`shopfloor rebuild`" in refused.stderr
    rebuilt = shopfloor("rebuild")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert "shopfloor.db.damaged-1" in rebuilt.stderr
    assert database.with_name("shopfloor.db.damaged-1").read_bytes() == damaged
    assert rebuilt.stdout.startswith("1 run from ")
    # One that can be opened, and is damaged inside.
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET rootpage = 3 WHERE name = 'pins'")
    connection.close()
    rebuilt = shopfloor("rebuild")
    assert rebuilt.returncode == 0, rebuilt.stderr
    assert "shopfloor.db.damaged-2" in rebuilt.stderr
    assert "echo kept" in shopfloor("list").stdout
