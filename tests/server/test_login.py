"""Browser logins: a link that works once, and sessions that can be ended."""

from __future__ import annotations

import json
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.server import RunningServer, open_server

from shopfloor.adapters.local import LocalAudit
from shopfloor.adapters.memory import MemoryTokens
from shopfloor.errors import ConflictError, NotFoundError, TooManyLogins, UsageError
from shopfloor.record import Storage
from shopfloor.server import AccessControl
from shopfloor.server.auth import LOGIN_PATH, LOGOUT_PATH, LoginLimiter
from shopfloor.server.limits import (
    FAILED_LOGIN_SECONDS,
    FAILED_LOGINS,
    LOGIN_CODE_SECONDS,
    SESSION_RENEW_SECONDS,
    SESSION_SECONDS,
    SESSIONS_MAX,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    storage = Storage(tmp_path_factory.mktemp("guarded") / "storage")
    with open_server(storage, audit=LocalAudit(storage.audit)) as server:
        yield server


@pytest.fixture
def server(guarded: RunningServer) -> RunningServer:
    """The shared server, with its count of failed logins and its audit log reset."""
    guarded.app.state.login_limiter = LoginLimiter()
    guarded.storage.audit.unlink(missing_ok=True)
    return guarded


@pytest.fixture
def browser(server: RunningServer) -> Iterator[httpx.Client]:
    with server.anonymous_client(headers={"Origin": server.url}) as client:
        yield client


class Clock:
    """A clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000_000.0
        monkeypatch.setattr(time, "time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def entries(server: RunningServer) -> list[dict[str, Any]]:
    return [*LocalAudit(server.storage.audit).read()]


# The link


@pytest.mark.req("SF-19")
def test_a_link_starts_a_session_once(server: RunningServer, browser: httpx.Client) -> None:
    code = server.tokens.make_login_code()
    got = browser.get(LOGIN_PATH, params={"code": code, "next": "/fleet"})
    assert (got.status_code, got.headers["location"]) == (303, "/fleet")
    attributes = {part.strip().lower() for part in got.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/", f"max-age={SESSION_SECONDS}"} <= attributes
    assert "secure" not in attributes, "a browser would not send it back over http"
    assert browser.get("/api/health").status_code == 200
    with server.anonymous_client() as other:
        got = other.get(LOGIN_PATH, params={"code": code})
        assert (got.status_code, got.json()["error"]["code"]) == (401, "unauthorized")
        assert "shopfloor login" in got.json()["error"]["hint"]
        assert "set-cookie" not in got.headers
    # The browser that used the link may open it again.
    assert browser.get(LOGIN_PATH, params={"code": code}).status_code == 303


@pytest.mark.req("SF-19")
def test_stored_digests_cannot_be_used_to_log_in(server: RunningServer, browser: httpx.Client) -> None:
    code = server.tokens.make_login_code()
    stored = server.storage.tokens.read_text()
    assert code not in stored
    browser.get(LOGIN_PATH, params={"code": code})
    (secret,) = (value for name, value in browser.cookies.items() if name == server.tokens.cookie)
    stored = server.storage.tokens.read_text()
    assert secret not in stored
    assert secret != server.tokens.admin_token()
    for digest in re.findall(r'"sha256": "([0-9a-f]+)"', stored):
        for cookie in (digest, digest[:8]):
            assert server.tokens.authenticate_session(cookie) is None
    # A session secret is no token, and a token is no session secret.
    with server.anonymous_client() as client:
        assert client.get("/api/health", headers={"Authorization": f"Bearer {secret}"}).status_code == 401
        headers = {"Cookie": f"{server.tokens.cookie}={server.tokens.admin_token()}"}
        assert client.get("/api/health", headers=headers).status_code == 401
        headers = {"Cookie": f'a={{"x":1}}; {server.tokens.cookie}={secret}; b=[]'}
        assert client.get("/api/health", headers=headers).status_code == 200


async def test_a_link_works_for_a_short_time(clock: Clock) -> None:
    access = AccessControl(MemoryTokens())
    code = await access.make_login_code()
    clock.now += LOGIN_CODE_SECONDS + 1
    assert await access.log_in_by_code(code) is None


@pytest.mark.parametrize("params", [{}, {"token": ""}, {"token": "wrong"}, {"code": "wrong"}, {"code": ""}])
def test_a_wrong_link_sets_no_cookie(browser: httpx.Client, params: dict[str, str]) -> None:
    got = browser.get(LOGIN_PATH, params=params)
    assert (got.status_code, got.json()["error"]["code"]) == (401, "unauthorized")
    assert "set-cookie" not in got.headers


def test_a_token_of_any_characters_logs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = 'a b;c,"d"=%41é, and more'
    monkeypatch.setenv("SHOPFLOOR_TOKEN", token)
    with open_server(Storage(tmp_path / "storage")) as server, server.anonymous_client() as client:
        assert client.get(LOGIN_PATH, params={"token": token}).status_code == 303
        assert client.get("/api/health").status_code == 200


# The session


@pytest.mark.req("SF-20")
async def test_a_session_lasts_while_it_is_used(clock: Clock) -> None:
    access = AccessControl(MemoryTokens())
    secret = await access.log_in_by_code(await access.make_login_code()) or ""
    for _ in range(5):
        clock.now += SESSION_SECONDS - 60
        caller = await access.authenticate_session(secret)
        assert caller is not None
        assert caller.expires_soon
        assert await access.renew_session(secret)
        assert await access.authenticate_session(secret) is not None
    clock.now += SESSION_SECONDS
    assert await access.authenticate_session(secret) is None


def test_a_request_renews_an_old_session_and_its_cookie(
    server: RunningServer, browser: httpx.Client, clock: Clock
) -> None:
    browser.get(LOGIN_PATH, params={"code": server.tokens.make_login_code()})
    assert "set-cookie" not in browser.get("/api/health").headers
    clock.now += SESSION_RENEW_SECONDS + 1
    renewed = browser.get("/api/health").headers["set-cookie"]
    assert renewed.startswith(f"{server.tokens.cookie}=")
    assert f"Max-Age={SESSION_SECONDS}" in renewed
    assert "set-cookie" not in browser.get("/api/health").headers


@pytest.mark.req("SF-20")
def test_logging_out_ends_the_session(server: RunningServer, browser: httpx.Client) -> None:
    browser.get(LOGIN_PATH, params={"code": server.tokens.make_login_code()})
    headers = {"Cookie": f"{server.tokens.cookie}={browser.cookies[server.tokens.cookie]}"}
    got = browser.post(LOGOUT_PATH)
    assert got.status_code == 204
    assert "Max-Age=0" in got.headers["set-cookie"]
    with server.anonymous_client() as thief:
        assert thief.get("/api/health", headers=headers).status_code == 401


@pytest.mark.req("SF-20")
@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_a_session_has_the_role_of_its_token_and_ends_with_it(
    server: RunningServer, browser: httpx.Client, role: Any
) -> None:
    token = server.tokens.issue_token(role, f"a {role}")
    browser.get(LOGIN_PATH, params={"token": token})
    assert browser.get("/api/health").status_code == 200
    assert browser.post("/api/runs/nothing/pin").status_code == (403 if role == "viewer" else 404)
    assert [entry.split()[0] for entry in server.tokens.revoke(f"a {role}")] == ["token", "session"]
    assert browser.get("/api/health").status_code == 401
    assert server.tokens.find_token_role(token) is None


def test_a_session_is_listed_and_revoked_by_its_id(server: RunningServer, browser: httpx.Client) -> None:
    browser.get(LOGIN_PATH, params={"code": server.tokens.make_login_code()}, headers={"User-Agent": "a browser"})
    session = server.tokens.list_credentials()[1][-1]
    assert (session.label, session.role, session.address, session.client) == (
        "owner",
        "admin",
        "127.0.0.1",
        "a browser",
    )
    assert server.tokens.revoke(session.id) == [f"session {session.id} of owner"]
    assert browser.get("/api/health").status_code == 401
    with pytest.raises(NotFoundError):
        server.tokens.revoke(session.id)


async def test_revoking_the_owner_and_issuing_a_taken_name_are_refused() -> None:
    access = AccessControl(MemoryTokens())
    await access.admin_token()
    await access.issue_token("viewer", "one")
    with pytest.raises(ConflictError, match="'one'"):
        await access.issue_token("viewer", "one")
    for name in ("owner", (await access.list_credentials())[0][0].id):
        with pytest.raises(ConflictError, match="owner"):
            await access.revoke(name)


async def test_sessions_have_a_limit(clock: Clock) -> None:
    access = AccessControl(MemoryTokens())
    token = await access.admin_token()
    secrets = []
    for _ in range(SESSIONS_MAX + 2):
        clock.now += 1
        secrets.append(await access.log_in_by_token(token) or "")
    assert len((await access.list_credentials())[1]) == SESSIONS_MAX
    assert [await access.authenticate_session(entry) is None for entry in secrets[:3]] == [True, True, False]


# Guessing


@pytest.mark.req("SF-21")
def test_failed_logins_are_limited_and_a_fresh_link_still_works(server: RunningServer, browser: httpx.Client) -> None:
    for _ in range(FAILED_LOGINS):
        assert browser.get(LOGIN_PATH, params={"token": "wrong"}).status_code == 401
    for params in ({"token": "wrong"}, {"token": server.tokens.admin_token()}, {"code": "wrong"}):
        got = browser.get(LOGIN_PATH, params=params)
        assert (got.status_code, got.json()["error"]["code"]) == (429, "too_many_logins")
        assert 0 < int(got.headers["retry-after"]) <= FAILED_LOGIN_SECONDS
    assert [entry["action"] for entry in entries(server)] == ["login.failed"] * FAILED_LOGINS
    assert browser.get(LOGIN_PATH, params={"code": server.tokens.make_login_code()}).status_code == 303
    with server.client() as client:
        assert client.get("/api/health").status_code == 200


def test_a_failed_login_counts_for_a_minute_per_address() -> None:
    moment = 0.0
    limiter = LoginLimiter(lambda: moment)
    for _ in range(FAILED_LOGINS):
        limiter.check("203.0.113.7")
        assert limiter.record_failure("203.0.113.7")
    with pytest.raises(TooManyLogins) as raised:
        limiter.check("203.0.113.7")
    assert raised.value.retry_after_seconds == FAILED_LOGIN_SECONDS
    limiter.check("203.0.113.8")
    moment = FAILED_LOGIN_SECONDS
    limiter.check("203.0.113.7")


@pytest.mark.req("SF-21")
def test_a_short_token_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOPFLOOR_TOKEN", "x" * 15)
    with pytest.raises(UsageError, match="at least 16"):
        AccessControl(MemoryTokens())


# The audit log


@pytest.mark.req("SF-22")
def test_logins_are_in_the_audit_log(server: RunningServer, browser: httpx.Client) -> None:
    agent = {"User-Agent": "x" * 1000}
    browser.get(LOGIN_PATH, params={"token": "wrong"}, headers=agent)
    browser.get(LOGIN_PATH, params={"code": server.tokens.make_login_code()})
    browser.post(LOGOUT_PATH)
    browser.get("/api/health", headers={"Authorization": "Bearer wrong"})
    failed, started, ended, refused = entries(server)
    assert (failed["action"], failed["by"], failed["address"]) == ("login.failed", "nobody", "127.0.0.1")
    assert len(failed["client"]) == 200
    assert (started["action"], started["role"], started["detail"]) == ("session.begun", "admin", "by link")
    assert re.fullmatch(r"session [0-9a-f]{8} of owner", started["by"])
    assert (ended["action"], ended["by"]) == ("session.ended", started["by"])
    assert (refused["action"], refused["detail"]) == ("access.refused", "token")
    assert stat.S_IMODE(server.storage.audit.stat().st_mode) == 0o600
    assert "wrong" not in json.dumps(entries(server))
