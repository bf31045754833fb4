"""Tokens: made on first use, kept for nobody else to read, known by their digest."""

import json
import logging
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shopfloor.errors import StorageError, StorageFailed
from shopfloor.server import Role, Tokens


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SHOPFLOOR_TOKEN", raising=False)
    return tmp_path / "storage" / "tokens.json"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_first_use_makes_an_admin_token_that_only_its_owner_can_read(path: Path) -> None:
    token = Tokens(path).admin_token()
    assert len(token) >= 43
    assert mode(path) == 0o600
    assert Tokens(path).admin_token() == token
    assert Tokens(path).role_of(token) == "admin"


def test_nothing_is_made_by_asking(path: Path) -> None:
    assert Tokens(path).role_of("x") is None
    assert not path.exists()


def test_many_that_start_at_once_agree_on_one_token(path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(lambda _: Tokens(path).admin_token(), range(16)))
    assert len(tokens) == 1


@pytest.mark.parametrize("role", ["viewer", "operator", "admin", "host"])
def test_an_issued_token_has_its_role_at_once_and_is_not_kept_itself(path: Path, role: Role) -> None:
    watching = Tokens(path)
    assert watching.role_of("x") is None
    token = Tokens(path).issue(role)
    assert watching.role_of(token) == role
    assert token not in path.read_text()
    assert mode(path) == 0o600


def test_the_environment_gives_the_token_and_leaves_the_folder_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOPFLOOR_TOKEN", "from outside, with care")
    tokens = Tokens(path)
    assert (tokens.admin_token(), tokens.role_of("from outside, with care")) == ("from outside, with care", "admin")
    assert not path.exists()


def test_an_empty_environment_gives_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOPFLOOR_TOKEN", "")
    tokens = Tokens(path)
    assert tokens.role_of("") is None
    assert tokens.admin_token()


def test_a_file_that_others_could_read_is_closed_to_them(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    token = Tokens(path).admin_token()
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert Tokens(path).role_of(token) == "admin"
    assert mode(path) == 0o600
    assert "could be read by others" in caplog.text


@pytest.mark.parametrize("text", ["", "[]", '{"tokens": [{"role": "king", "sha256": "x"}]}'])
def test_a_broken_file_is_said_so(path: Path, text: str) -> None:
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(StorageFailed, match="is not a list of tokens"):
        Tokens(path).role_of("x")


def test_a_folder_that_cannot_be_used_is_said_so(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StorageError):
        Tokens(path).role_of("x")


def test_what_is_kept_is_what_is_needed(path: Path) -> None:
    tokens = Tokens(path)
    tokens.admin_token()
    tokens.issue("viewer")
    admin, viewer = json.loads(path.read_text())["tokens"]
    assert set(admin) == {"role", "sha256", "token"}
    assert set(viewer) == {"role", "sha256", "made_at"}
