"""Operations on webhooks, for admins: list, add, remove, test."""

from __future__ import annotations

import base64
import secrets
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from shopfloor.decoding import json_decoder
from shopfloor.errors import ConflictError, Forbidden, InvalidParameter, NotFoundError
from shopfloor.limits import HOOK_URL_CHARS, HOOKS_MAX
from shopfloor.log import new_run_id, now
from shopfloor.ports import Hook, Hooks, HookStatus
from shopfloor.server.audit import audit, get_caller
from shopfloor.server.hook_models import AddedHook, HookItem, HookList, HookTest, RemovedHook
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import HookParams, NoParams
from shopfloor.server.request_models import AddHook, decode_body
from shopfloor.server.responses import describe_json, get_services, json_response
from shopfloor.views import DEFAULT_NOTIFICATION_KINDS, NOTIFICATION_KINDS, Notification, encode_cloud_event

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - the prefix of Standard Webhooks
_SECRET_BYTES: Final = 24
_ID_BYTES: Final = 4
_add_decoder = json_decoder(AddHook)

operations = Operations()


@operations("GET", "/api/hooks", describe_json(HookList, "The hooks, oldest first."))
async def list_hooks(request: Request, _: NoParams) -> Response:
    """List the webhooks and commands that are notified of runs. Needs the role admin."""
    return json_response(HookList([_item(status) for status in await _hooks(request).all()]))


@operations("POST", "/api/hooks", describe_json(AddedHook, "The hook, with its secret."), body=AddHook)
async def add_hook(request: Request, _: NoParams) -> Response:
    """Add a webhook. The response has its secret, which is not shown again. Needs the role admin."""
    hooks = _hooks(request)
    body = await decode_body(request, _add_decoder)
    _check_url(body.url)
    if sum(status.hook.origin == "api" for status in await hooks.all()) >= HOOKS_MAX:
        raise ConflictError(f"there are already {HOOKS_MAX} hooks", hint="remove one first")
    hook = Hook(
        id=secrets.token_hex(_ID_BYTES),
        origin="api",
        created_at=now(),
        url=body.url,
        secret=base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode(),
        kinds=tuple(kind for kind in NOTIFICATION_KINDS if kind in body.kinds) or DEFAULT_NOTIFICATION_KINDS,
    )
    await hooks.add(hook)
    # The path and the query of such an address are often a secret.
    await audit(request, "hook.added", detail=f"{hook.id} {urlsplit(body.url).netloc}")
    return json_response(AddedHook(id=hook.id, secret=SECRET_PREFIX + hook.secret))


@operations("DELETE", "/api/hooks/{hook_id}", describe_json(RemovedHook, "The hook is removed."), HookParams)
async def remove_hook(request: Request, params: HookParams) -> Response:
    """Remove a webhook, and its pending deliveries. Needs the role admin."""
    hooks = _hooks(request)
    hook = await _find(hooks, params.hook_id)
    if hook.origin == "settings":
        raise ConflictError(f"hook {hook.id} comes from the settings file", hint="remove it there, then restart")
    await hooks.remove(hook.id)
    await audit(request, "hook.removed", detail=hook.id)
    return json_response(RemovedHook(id=hook.id))


@operations("POST", "/api/hooks/{hook_id}/test", describe_json(HookTest, "What the receiver did."), HookParams)
async def test_hook(request: Request, params: HookParams) -> Response:
    """Send a made-up outcome to a hook once, and return how that went. Needs the role admin."""
    hook = await _find(_hooks(request), params.hook_id)
    send = get_services(request).send_notification
    if send is None:
        raise NotFoundError("this server cannot send notifications", hint="use a server started with `shopfloor up`")
    run_id, at = new_run_id(), now()
    data: dict[str, Any] = {
        "run_id": run_id,
        "root_run_id": run_id,
        "worker": "test",
        "title": "A test of this hook",
        "status": "completed",
        "test": True,
    }
    notification = Notification(run_id=run_id, seq=1, kind="outcome", at=at, data=data)
    problem = await send(hook, notification.id, encode_cloud_event(notification))
    return json_response(HookTest(id=hook.id, delivered=problem is None, problem=problem))


def _hooks(request: Request) -> Hooks:
    """Return the hooks. Raises `Forbidden` unless the caller is an admin."""
    caller = get_caller(request.scope)
    if caller is None or caller.role != "admin":
        raise Forbidden(
            "only an admin may see and change hooks",
            hint="this needs the role admin: `shopfloor tokens new NAME --role admin`",
        )
    hooks = get_services(request).hooks
    if hooks is None:
        raise NotFoundError("this server has no hooks", hint="use a server started with `shopfloor up`")
    return hooks


async def _find(hooks: Hooks, hook_id: str) -> Hook:
    for status in await hooks.all():
        if status.hook.id == hook_id:
            return status.hook
    raise NotFoundError(f"there is no hook {hook_id}", hint="`shopfloor hooks list` lists them")


def _check_url(url: str) -> None:
    """Raise `InvalidParameter` unless a webhook can be sent to the URL."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, valid = urlsplit(""), False
    if not valid or len(url) > HOOK_URL_CHARS or not url.isprintable() or " " in url:
        raise InvalidParameter(
            f"url: must be an http or https address of at most {HOOK_URL_CHARS} characters",
            hint="e.g. https://example.com/hooks/shopfloor",
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidParameter("url: must not contain a user or password", hint="check the signature instead")


def _item(status: HookStatus) -> HookItem:
    hook = status.hook
    return HookItem(
        id=hook.id,
        origin=hook.origin,
        url=hook.url,
        command=hook.command,
        kinds=list(hook.kinds),
        run_id=hook.run_id,
        created_at=hook.created_at,
        pending=status.pending,
        delivered=status.delivered,
        dropped=status.dropped,
        last_error=status.last_error,
        last_at=status.last_at,
    )
