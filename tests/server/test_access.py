"""Access control: tokens created on first use, stored as digests, each with a role."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from shopfloor.adapters.local import LocalTokens
from shopfloor.adapters.memory import MemoryTokens
from shopfloor.errors import StorageFull
from shopfloor.ports import Access, Role
from shopfloor.server import AccessControl
from shopfloor.server.limits import SESSION_RENEW_SECONDS

pytestmark = pytest.mark.anyio
T = TypeVar("T")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def without_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOPFLOOR_TOKEN", raising=False)


class RetriedTokens(MemoryTokens):
    """Tokens in a store where another process always wins the first race, so that each change is applied twice."""

    async def update(self, change: Callable[[Access], tuple[Access, T]]) -> T:
        change(await self.read())
        return await super().update(change)


@pytest.fixture(params=[MemoryTokens, RetriedTokens])
def tokens(request: pytest.FixtureRequest) -> MemoryTokens:
    return request.param()


async def test_the_first_use_creates_an_admin_token(tokens: MemoryTokens) -> None:
    token = await AccessControl(tokens).admin_token()
    assert len(token) >= 43
    assert await AccessControl(tokens).admin_token() == token
    assert await AccessControl(tokens).find_token_role(token) == "admin"


async def test_processes_that_start_at_once_agree_on_one_token(tmp_path: Path) -> None:
    tokens_made: set[str] = set()

    async def start() -> None:
        tokens_made.add(await AccessControl(LocalTokens(tmp_path / "storage" / "tokens.json")).admin_token())

    async with anyio.create_task_group() as tasks:
        for _ in range(16):
            tasks.start_soon(start)
    assert len(tokens_made) == 1


async def test_looking_up_a_token_creates_nothing(tokens: MemoryTokens) -> None:
    assert await AccessControl(tokens).find_token_role("x") is None
    assert await tokens.read() == Access()


@pytest.mark.parametrize("role", ["viewer", "operator", "admin", "host"])
async def test_an_issued_token_has_its_role_at_once_and_only_its_digest_is_stored(
    tokens: MemoryTokens, role: Role
) -> None:
    other = AccessControl(tokens)
    assert await other.find_token_role("x") is None
    token = await AccessControl(tokens).issue_token(role)
    assert await other.find_token_role(token) == role
    assert token not in str(await tokens.read())


async def test_a_token_from_the_environment_is_not_stored(
    tokens: MemoryTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOPFLOOR_TOKEN", "from outside, with care")
    access = AccessControl(tokens)
    assert await access.admin_token() == "from outside, with care"
    assert await access.find_token_role("from outside, with care") == "admin"
    assert await tokens.read() == Access()


async def test_an_empty_environment_variable_is_ignored(tokens: MemoryTokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOPFLOOR_TOKEN", "")
    access = AccessControl(tokens)
    assert await access.find_token_role("") is None
    assert await access.admin_token()


async def test_only_the_token_of_the_owner_is_stored_readably(tokens: MemoryTokens) -> None:
    access = AccessControl(tokens)
    token = await access.admin_token()
    await access.issue_token("viewer")
    admin, viewer = (await tokens.read()).tokens
    assert (admin.token, admin.made_at, admin.name) == (token, None, None)
    assert (viewer.token, viewer.made_at is None, viewer.name) == (None, False, None)


async def test_a_link_starts_one_session_even_if_used_concurrently(tokens: MemoryTokens) -> None:
    access = AccessControl(tokens)
    code = await access.make_login_code()
    sessions: list[str | None] = []

    async def log_in() -> None:
        sessions.append(await access.log_in_by_code(code))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(log_in)
    assert len(sessions) == 20
    assert len([secret for secret in sessions if secret]) == 1


async def test_concurrent_requests_renew_a_session_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class CountingTokens(MemoryTokens):
        stored = 0

        async def update(self, change):
            before = await self.read()
            result = await super().update(change)
            self.stored += await self.read() != before
            return result

    moment = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: moment)
    tokens = CountingTokens()
    access = AccessControl(tokens)
    secret = await access.log_in_by_code(await access.make_login_code()) or ""
    moment += SESSION_RENEW_SECONDS + 1
    tokens.stored = 0
    assert [await access.renew_session(secret) for _ in range(5)] == [True] * 5
    assert tokens.stored == 1
    caller = await access.authenticate_session(secret)
    assert caller is not None
    assert not caller.expires_soon


async def test_a_session_that_cannot_be_renewed_keeps_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    class FullTokens(MemoryTokens):
        is_full = False

        async def update(self, change):
            if self.is_full:
                raise StorageFull("no space left")
            return await super().update(change)

    moment = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: moment)
    tokens = FullTokens()
    access = AccessControl(tokens)
    secret = await access.log_in_by_code(await access.make_login_code()) or ""
    tokens.is_full = True
    moment += SESSION_RENEW_SECONDS + 1
    assert not await access.renew_session(secret)
    caller = await access.authenticate_session(secret)
    assert caller is not None
    assert caller.expires_soon
