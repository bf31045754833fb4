"""What every request passes before anything else sees it: Host, Origin, token and role; and what every answer gets."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shopfloor.errors import Forbidden, TooManyLogins, Unauthorized
from shopfloor.ports import Audit, Role
from shopfloor.server.access import AccessControl, Caller
from shopfloor.server.audit import audit_scope, client_address, set_caller
from shopfloor.server.connections import peer_name
from shopfloor.server.error_handlers import response_for_error
from shopfloor.server.html_pages import STYLESHEET_PATH
from shopfloor.server.limits import FAILED_LOGIN_SECONDS, FAILED_LOGINS, LOGIN_ADDRESSES, SESSION_SECONDS


class LoginLimiter:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def check(self, address: str | None) -> None:
        """Raise TooManyLogins where too many logins of this address have failed just now."""
        times = self._recent(peer_name(address))
        if len(times) >= FAILED_LOGINS:
            seconds = max(1, math.ceil(times[0] + FAILED_LOGIN_SECONDS - self._clock()))
            raise TooManyLogins(
                f"too many logins failed from {address or 'there'}",
                hint=f"try again in {seconds} seconds, or open a fresh link of `shopfloor login`",
                retry_after_seconds=seconds,
            )

    def record_failure(self, address: str | None) -> bool:
        """Count a failed login; False where the address has used up what it may."""
        name = peer_name(address)
        times = self._recent(name)
        if len(times) >= FAILED_LOGINS:
            return False
        times.append(self._clock())
        # The newest last, so that the oldest goes first.
        self._failures.pop(name, None)
        self._failures[name] = times
        while len(self._failures) > LOGIN_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        return True

    def _recent(self, name: str) -> deque[float]:
        times = self._failures.get(name, deque[float]())
        while times and times[0] + FAILED_LOGIN_SECONDS <= self._clock():
            times.popleft()
        return times


LOGIN_PATH: Final = "/login"
"""Where a browser brings the code of a login link, or a token."""
LOGOUT_PATH: Final = "/logout"
_OPEN: Final = frozenset({LOGIN_PATH, STYLESHEET_PATH})
"""What is open to who has no token yet: the login, and how the page looks that asks for it."""

SECURITY_HEADERS: Final = {
    # Scripts and styles are files of ours or nothing: text of a transcript can never become either.
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}

_THIS_MACHINE: Final = ("localhost", "127.0.0.1", "[::1]")
_PLAIN_PORT: Final = 80
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAY_READ: Final[frozenset[Role]] = frozenset({"viewer", "operator", "admin"})
_MAY_ACT: Final[frozenset[Role]] = frozenset({"operator", "admin"})
_LOGIN_HINT: Final = "open a login link of `shopfloor login`, or send `Authorization: Bearer <token>`"
_POLICY_VIOLATION: Final = 1008


class AuthMiddleware:
    """ASGI middleware around all routes, also those that are not there."""

    def __init__(
        self, app: ASGIApp, *, access: AccessControl, allowed_hosts: tuple[str, ...], audit: Audit | None = None
    ) -> None:
        self._app = app
        self._access = access
        self._audit = audit
        self._refusals = LoginLimiter()
        self._allowed_hosts = frozenset(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "websocket":
                await self._websocket(scope, receive, send)
            case _:
                await self._app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        renewed: str | None = None

        async def send_guarded(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                _guard(headers)
                if renewed is not None:
                    headers.append("set-cookie", session_cookie_header(self._access.cookie, renewed, scope))
            await send(message)

        try:
            renewed = await self._check(scope)
            await self._app(scope, receive, send_guarded)
        except Exception as error:
            if begun:
                # Too late for another answer; the server breaks the connection off, so that nobody takes it for whole.
                raise
            await response_for_error(error, scope)(scope, receive, send_guarded)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._check(scope)
        except (Forbidden, Unauthorized) as error:
            await receive()
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": error.message})
            return
        await self._app(scope, receive, send)

    async def _check(self, scope: Scope) -> str | None:
        """Raise what a request is refused with; the secret of a session that was renewed by the request."""
        headers = Headers(scope=scope)
        self._check_host(scope, headers)
        _check_origin(headers)
        if scope["path"] in _OPEN:
            return None
        caller, secret = await self._caller(scope, headers)
        set_caller(scope, caller)
        # Logging out takes nothing from anybody else.
        _check_role(caller.role, reading=scope.get("method", "GET") in _READING or scope["path"] == LOGOUT_PATH)
        return secret if caller.expires_soon and await self._access.renew_session(secret) else None

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        """Refuses names that are not ours: a page that had its own name point here (DNS rebinding) is stopped by it."""
        said = [host.lower() for host in headers.getlist("host")]
        if len(said) == 1 and (said[0] in self._own_hosts(scope) or self._is_allowed(said[0])):
            return
        raise Forbidden(
            f"this server is not known as {', '.join(said) or 'a server without a name'}",
            hint="ask for it as localhost, or allow the name where the server is started",
        )

    def _own_hosts(self, scope: Scope) -> set[str]:
        port = (scope.get("server") or (None, None))[1]
        names = {f"{name}:{port}" for name in _THIS_MACHINE}
        return names | set(_THIS_MACHINE) if port == _PLAIN_PORT else names

    def _is_allowed(self, host: str) -> bool:
        without_port = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        return host in self._allowed_hosts or without_port in self._allowed_hosts

    async def _caller(self, scope: Scope, headers: Headers) -> tuple[Caller, str]:
        """Who asks, by a token or by a browser's session, and the secret that says so."""
        said = headers.get("authorization")
        if said is not None:
            scheme, _, secret = said.partition(" ")
            secret = secret.strip() if scheme.lower() == "bearer" else ""
            caller = await self._access.authenticate_token(secret) if secret else None
        else:
            secret = read_session_cookie(headers, self._access.cookie) or ""
            caller = await self._access.authenticate_session(secret) if secret else None
        if caller is not None:
            return caller, secret
        if not secret:
            raise Unauthorized("a token is needed", hint=_LOGIN_HINT)
        if self._refusals.record_failure(client_address(scope)):
            await audit_scope(self._audit, scope, "access.refused", detail="token" if said is not None else "session")
        raise Unauthorized(
            "this token is not known here" if said is not None else "this session has ended", hint=_LOGIN_HINT
        )


def _check_role(role: Role, *, reading: bool) -> None:
    if role not in (_MAY_READ if reading else _MAY_ACT):
        doing = "reads" if reading else "acts"
        raise Forbidden(f"a token of the role {role} is not one that {doing} here", hint="use one of another role")


def read_session_cookie(headers: Headers, name: str) -> str | None:
    """The secret of the session that a browser sends in its cookie of this name."""
    for cookie in headers.getlist("cookie"):
        found = cookie_parser(cookie).get(name)
        if found is not None:
            return found
    return None


def session_cookie_header(name: str, secret: str, scope: Scope, max_age: int = SESSION_SECONDS) -> str:
    """The header that has a browser keep a session; with a `max_age` of 0 it forgets it."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return f"{name}={secret}; Max-Age={max_age}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _guard(headers: MutableHeaders) -> None:
    for name, value in SECURITY_HEADERS.items():
        headers[name] = value
    # What is said here is for one pair of eyes.
    headers.setdefault("Cache-Control", "no-store")


def _check_origin(headers: Headers) -> None:
    """Refuses what pages of other sites ask for."""
    for origin in headers.getlist("origin"):
        try:
            named = urlsplit(origin)
        except ValueError:
            named = urlsplit("")
        if named.scheme not in ("http", "https") or named.netloc.lower() != headers["host"].lower():
            raise Forbidden(f"pages of {origin} may not ask this server")
