"""Sends notifications: signed webhooks in the style of Standard Webhooks, and commands of this machine (ADR 32)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final, Self

import anyio
import anyio.to_thread
import msgspec

from shopfloor.adapters.limits import HOOK_TIMEOUT_SECONDS
from shopfloor.limits import HOOK_COMMAND_SECONDS
from shopfloor.ports import Hook
from shopfloor.version import __version__
from shopfloor.views import notification_environment

if TYPE_CHECKING:
    from httpx import AsyncClient

MEDIA_TYPE: Final = "application/cloudevents+json"
_FIRST_SUCCESS, _FIRST_REDIRECT = 200, 300
_NOTIFY_SEND: Final = 'notify-send -a Shopfloor -- "Shopfloor: $SHOPFLOOR_WORKER $SHOPFLOOR_STATUS" "$SHOPFLOOR_TITLE"'
_OSASCRIPT: Final = (
    "osascript -e 'on run argv' -e 'display notification (item 2 of argv) with title (item 1 of argv)' -e 'end run'"
    ' -- "Shopfloor: $SHOPFLOOR_WORKER $SHOPFLOOR_STATUS" "$SHOPFLOOR_TITLE"'
)


def sign(secret: str, event_id: str, timestamp: int, body: bytes) -> str:
    """Return the signature of a webhook: `v1,` and the HMAC-SHA256 of id, time and body, in base64."""
    key = base64.b64decode(secret)
    digest = hmac.new(key, f"{event_id}.{timestamp}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"


def desktop_command() -> str | None:
    """Return the command that shows a notification on this desktop, or None if it has none."""
    if sys.platform == "darwin":
        return _OSASCRIPT if shutil.which("osascript") else None
    return _NOTIFY_SEND if shutil.which("notify-send") else None


class NotificationSender:
    """Implements `SendNotification`. As a context manager it closes its HTTP client."""

    def __init__(
        self,
        *,
        timeout_seconds: float = HOOK_TIMEOUT_SECONDS,
        command_seconds: float = HOOK_COMMAND_SECONDS,
        shows_output: bool = False,
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._command_seconds = command_seconds
        self._output = None if shows_output else subprocess.DEVNULL
        """Where the output of commands goes: stderr of this process, or nowhere."""
        self._client: AsyncClient | None = None
        self._client_lock = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def _open_client(self) -> AsyncClient:
        async with self._client_lock:
            if self._client is None:
                # Loading certificates takes long: do it once, and not on the event loop.
                self._client = await anyio.to_thread.run_sync(self._create_client)
            return self._client

    def _create_client(self) -> AsyncClient:
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        import httpx

        return httpx.AsyncClient(
            timeout=self._timeout_seconds,
            follow_redirects=False,
            trust_env=False,
            # Nothing of a delivery is kept for the next one: no connection, which the receiver may close meanwhile,
            # and no cookie.
            limits=httpx.Limits(max_keepalive_connections=0),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        )

    async def __call__(self, hook: Hook, event_id: str, body: bytes) -> str | None:
        if hook.url is not None:
            return await self._post(hook.url, hook.secret, event_id, body)
        return await self._execute(hook.command or "", hook.cwd, body)

    async def _post(self, url: str, secret: str, event_id: str, body: bytes) -> str | None:
        client = await self._open_client()
        import httpx

        timestamp = int(time.time())
        headers = {
            "content-type": MEDIA_TYPE,
            "user-agent": f"shopfloor/{__version__}",
            "webhook-id": event_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(secret, event_id, timestamp, body),
        }
        try:
            with anyio.fail_after(self._timeout_seconds):
                # The body of the answer is not read: it may be endless.
                async with client.stream("POST", url, content=body, headers=headers) as response:
                    status = response.status_code
        except TimeoutError:
            return f"no answer within {self._timeout_seconds:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            # A name that IDNA does not allow is a ValueError.
            return f"{type(error).__name__}: {error}"[:200]
        return None if _FIRST_SUCCESS <= status < _FIRST_REDIRECT else f"answered with status {status}"

    async def _execute(self, command: str, cwd: str | None, body: bytes) -> str | None:
        """Run a shell command with the event on stdin and its main fields in the environment."""
        environment = {**os.environ, **notification_environment(msgspec.json.decode(body))}
        try:
            process = await anyio.open_process(
                ["sh", "-c", command],
                stdin=subprocess.PIPE,
                stdout=sys.stderr if self._output is None else self._output,
                stderr=self._output,
                cwd=cwd if cwd and os.path.isdir(cwd) else None,  # noqa: PTH112
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"cannot start the command: {error}"
        try:
            with anyio.fail_after(self._command_seconds):
                with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
                    if process.stdin is not None:
                        await process.stdin.send(body)
                        await process.stdin.aclose()
                code = await process.wait()
        except TimeoutError:
            return f"the command took longer than {self._command_seconds:g} s"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await process.wait()
        return None if code == 0 else f"the command ended with exit code {code}"
