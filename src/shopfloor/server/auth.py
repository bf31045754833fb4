"""Authentication of every request (Host, Origin, token or session, role), and limits on failed logins.

`AuthMiddleware` runs before anything else sees a request, and adds the security headers to every response.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shopfloor.errors import Forbidden, ShopfloorError, StorageError, TooManyLogins, Unauthorized
from shopfloor.ports import Audit, Role
from shopfloor.server.access import AccessControl, Caller
from shopfloor.server.audit import audit_scope, client_address, set_caller
from shopfloor.server.connections import peer_name
from shopfloor.server.error_handlers import response_for_error, to_public_error
from shopfloor.server.html_pages import STYLESHEET_PATH
from shopfloor.server.limits import (
    FAILED_LOGIN_SECONDS,
    FAILED_LOGINS,
    LOGIN_ADDRESSES,
    REVOCATION_CHECK_SECONDS,
    SESSION_SECONDS,
)


class LoginLimiter:
    """Counts failed logins per address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, deque[float]] = {}

    def check(self, address: str | None) -> None:
        """Raise TooManyLogins if too many logins from this address failed within `FAILED_LOGIN_SECONDS`."""
        times = self._recent(peer_name(address))
        if len(times) >= FAILED_LOGINS:
            seconds = max(1, math.ceil(times[0] + FAILED_LOGIN_SECONDS - self._clock()))
            raise TooManyLogins(
                f"too many failed logins from {address or 'this address'}",
                hint=f"try again in {seconds} seconds, or open a new link from `shopfloor login`",
                retry_after_seconds=seconds,
            )

    def record_failure(self, address: str | None) -> bool:
        """Count a failed login. Return False if the address has already reached the limit."""
        name = peer_name(address)
        times = self._recent(name)
        if len(times) >= FAILED_LOGINS:
            return False
        times.append(self._clock())
        # Move the address to the end, so that the address without failures for longest is dropped first.
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
"""Where a browser sends the code of a login link, or a token."""
LOGOUT_PATH: Final = "/logout"
RPC_PATH: Final = "/rpc"
MCP_PATH: Final = "/mcp"
TRPC_PATH: Final = "/trpc"
"""The WebSocket of fleet events."""
_AUTHENTICATOR, _REFUSAL, _IS_KNOWN = "authenticator", "refusal", "is_known"
_PUBLIC_PATHS: Final = frozenset({LOGIN_PATH, STYLESHEET_PATH})
"""Paths that need no token: the login, and the style sheet of its page."""
_READER_PATHS: Final = frozenset({LOGOUT_PATH, RPC_PATH, MCP_PATH})
"""Paths to which every role that may read may POST. Logging out affects only the caller; of the others, each method
requires the role for what it does."""

SECURITY_HEADERS: Final = {
    # Scripts and styles come only from this server's files, so text of a transcript can never become either.
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # A page on another port of this machine is of the same site: its requests for pictures and scripts have the cookie.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
}

_THIS_MACHINE: Final = ("localhost", "127.0.0.1", "[::1]")
_PLAIN_PORT: Final = 80
_READ_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MAY_READ: Final[frozenset[Role]] = frozenset({"viewer", "operator", "admin"})
_MAY_ACT: Final[frozenset[Role]] = frozenset({"operator", "admin"})
_LOGIN_HINT: Final = "open a login link from `shopfloor login`, or send `Authorization: Bearer <token>`"
_UNKNOWN_HINT: Final = "check SHOPFLOOR_TOKEN; `shopfloor tokens new NAME` on the server's machine creates a token"
_POLICY_VIOLATION: Final = 1008


class AuthMiddleware:
    """ASGI middleware around all routes, unknown paths included."""

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
        response_started = False
        renewed: str | None = None

        async def send_with_headers(message: Message) -> None:
            nonlocal response_started
            if message["type"] == "http.response.start":
                response_started = True
                headers = MutableHeaders(scope=message)
                _add_security_headers(headers)
                if renewed is not None:
                    headers.append("set-cookie", session_cookie_header(self._access.cookie, renewed, scope))
            await send(message)

        try:
            renewed = await self._check(scope)
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            if response_started:
                # Too late for an error response. The server closes the connection, so that the client does not take
                # the partial response for a complete one.
                raise
            await response_for_error(error, scope)(scope, receive, send_with_headers)

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if scope["path"] == TRPC_PATH:
                await self._check_socket(scope)
            else:
                await self._check(scope)
        except Exception as error:  # noqa: BLE001 - any failure refuses the client
            await receive()
            reason = to_public_error(error).message
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": reason})
            return
        await self._app(scope, receive, send)

    async def _check(self, scope: Scope) -> str | None:
        """Raise Forbidden or Unauthorized if a request is refused. Return the session secret if it was renewed."""
        headers = Headers(scope=scope)
        self._check_host(scope, headers)
        _check_origin(headers)
        if scope["path"] in _PUBLIC_PATHS:
            return None
        caller, secret = await self._caller(scope, headers)
        self._set_caller(scope, caller, secret)
        # A WebSocket has no method.
        method = scope.get("method")
        if method not in _READ_METHODS:
            _require_origin(headers, caller)
        require_role(caller.role, is_read=method in (None, *_READ_METHODS) or scope["path"] in _READER_PATHS)
        return secret if caller.expires_soon and await self._access.renew_session(secret) else None

    async def _check_socket(self, scope: Scope) -> None:
        """Check a request for a WebSocket whose client may send its token as the first message.

        A token in the request that is invalid, or cannot be checked, is reported over the WebSocket: clients cannot
        read a refused handshake.
        """
        headers = Headers(scope=scope)
        self._check_host(scope, headers)
        _check_origin(headers)
        state = scope.setdefault("state", {})
        state[_AUTHENTICATOR] = partial(self._authenticate_socket, scope)
        if "authorization" in headers or read_session_cookie(headers, self._access.cookie):
            try:
                caller, secret = await self._caller(scope, headers)
                _require_origin(headers, caller)
                require_role(caller.role, is_read=True)
                self._set_caller(scope, caller, secret)
            except Exception as error:  # noqa: BLE001 - any failure refuses the client
                state[_REFUSAL] = to_public_error(error)

    async def _authenticate_socket(self, scope: Scope, token: str) -> None:
        caller = await self._access.authenticate_token(token)
        if caller is None:
            await self._record_refusal(scope, "token")
            raise Unauthorized("this token is not known here", hint=_UNKNOWN_HINT)
        require_role(caller.role, is_read=True)
        self._set_caller(scope, caller, token)

    def _set_caller(self, scope: Scope, caller: Caller, secret: str) -> None:
        set_caller(scope, caller)
        scope["state"][_IS_KNOWN] = partial(self._is_known, caller, secret)

    async def _is_known(self, caller: Caller, secret: str) -> bool:
        access = self._access
        authenticate = access.authenticate_token if caller.kind == "token" else access.authenticate_session
        return await authenticate(secret) is not None

    async def _record_refusal(self, scope: Scope, detail: str) -> None:
        if self._refusals.record_failure(client_address(scope)):
            await audit_scope(self._audit, scope, "access.refused", detail=detail)

    def _check_host(self, scope: Scope, headers: Headers) -> None:
        """Refuse unknown host names, which stops DNS rebinding: a site that points its own name at this server."""
        hosts = [host.lower() for host in headers.getlist("host")]
        if len(hosts) == 1 and (hosts[0] in self._own_hosts(scope) or self._is_allowed(hosts[0])):
            return
        raise Forbidden(
            f"this server does not accept the host name {', '.join(hosts) or '(none)'}",
            hint="use localhost or the server's address, or start the server with `shopfloor up --allow-host NAME`",
        )

    def _own_hosts(self, scope: Scope) -> set[str]:
        address, port = scope.get("server") or (None, None)
        # The address at which a request arrived is a number: no other site can have it as its name.
        machine = {*_THIS_MACHINE, *([f"[{address}]" if ":" in address else address] if address else [])}
        names = {f"{name}:{port}" for name in machine}
        return names | machine if port == _PLAIN_PORT else names

    def _is_allowed(self, host: str) -> bool:
        without_port = host.rsplit(":", 1)[0] if not host.endswith("]") else host
        return host in self._allowed_hosts or without_port in self._allowed_hosts

    async def _caller(self, scope: Scope, headers: Headers) -> tuple[Caller, str]:
        """Return the caller, identified by a token or by a browser's session, and the secret that was sent."""
        authorization = headers.get("authorization")
        if authorization is not None:
            scheme, _, secret = authorization.partition(" ")
            secret = secret.strip() if scheme.lower() == "bearer" else ""
            caller = await self._access.authenticate_token(secret) if secret else None
        else:
            secret = read_session_cookie(headers, self._access.cookie) or ""
            caller = await self._access.authenticate_session(secret) if secret else None
        if caller is not None:
            return caller, secret
        if not secret:
            raise Unauthorized("a token is needed", hint=_LOGIN_HINT)
        await self._record_refusal(scope, "token" if authorization is not None else "session")
        if authorization is not None:
            raise Unauthorized("this token is not known here", hint=_UNKNOWN_HINT)
        raise Unauthorized("this session has ended", hint=_LOGIN_HINT)


def get_authenticator(scope: Scope) -> Callable[[str], Awaitable[None]]:
    """Return the function that checks a token which came over a WebSocket.

    It raises `AccessError`, or `StorageError` if the token cannot be checked.
    """
    return scope["state"][_AUTHENTICATOR]


def get_refusal(scope: Scope) -> ShopfloorError | None:
    """Return why the token or session in a request for a WebSocket is refused, if it is."""
    return scope["state"].get(_REFUSAL)


async def wait_until_revoked(scope: Scope) -> None:
    """Return when the token or session of a request is not valid any more. Streams outlive the check of a request."""
    while True:
        await anyio.sleep(REVOCATION_CHECK_SECONDS)
        is_known = scope.get("state", {}).get(_IS_KNOWN)
        with suppress(StorageError):
            if is_known is not None and not await is_known():
                return


def require_role(role: Role, *, is_read: bool) -> None:
    """Raise Forbidden if the role may not do this: read, or change anything."""
    if role not in (_MAY_READ if is_read else _MAY_ACT):
        action, needed = ("read", "viewer") if is_read else ("change anything", "operator")
        raise Forbidden(
            f"the role {role} may not {action} here",
            hint=f"this needs the role {needed}: `shopfloor tokens new NAME --role {needed}`",
        )


def read_session_cookie(headers: Headers, name: str) -> str | None:
    """Return the session secret in the cookie of this name, or None if the browser sent none."""
    for cookie in headers.getlist("cookie"):
        found = cookie_parser(cookie).get(name)
        if found is not None:
            return found
    return None


def session_cookie_header(name: str, secret: str, scope: Scope, max_age: int = SESSION_SECONDS) -> str:
    """Return the `Set-Cookie` value that stores a session in the browser; `max_age=0` deletes the cookie."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    return f"{name}={secret}; Max-Age={max_age}; Path=/; HttpOnly; SameSite=Strict{secure}"


def _add_security_headers(headers: MutableHeaders) -> None:
    for name, value in SECURITY_HEADERS.items():
        # A response may have a stricter policy of its own.
        headers.setdefault(name, value)
    # Responses are for this caller only.
    headers.setdefault("Cache-Control", "no-store")


def _check_origin(headers: Headers) -> None:
    """Refuse requests from pages of other sites."""
    for origin in headers.getlist("origin"):
        try:
            url = urlsplit(origin)
        except ValueError:
            url = urlsplit("")
        if url.scheme not in ("http", "https") or url.netloc.lower() != headers["host"].lower():
            raise Forbidden(f"pages of {origin} may not send requests to this server")


def _require_origin(headers: Headers, caller: Caller) -> None:
    """Refuse what changes something, and WebSockets, in a browser's session without the origin of the page.

    Browsers send it with both. A cookie alone does not show which page sent it.
    """
    if caller.kind == "session" and "origin" not in headers:
        raise Forbidden(
            "a browser's session needs the header Origin for this",
            hint="send this server's address as Origin, or use a token: `Authorization: Bearer <token>`",
        )
