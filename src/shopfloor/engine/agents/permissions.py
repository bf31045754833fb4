"""Requests of a running agent for the permission to call a tool: decided by rules or by a person, and answered."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from shopfloor.engine.approvals import ApprovalGate
from shopfloor.engine.attempt import Attempt
from shopfloor.engine.replay_state import StepKey
from shopfloor.engine.workers.approval_patterns import matching_patterns
from shopfloor.errors import ShopfloorError
from shopfloor.ports import Child, Launch, PermissionRequest

_Encoder = Callable[[PermissionRequest, str | None], bytes]


class AgentPermissions:
    """The permissions of one process of an agent. Several requests may be open at once."""

    def __init__(
        self,
        attempt: Attempt,
        gate: ApprovalGate | None,
        step_key: StepKey,
        *,
        launch: Launch,
        child: Child,
        fail: Callable[[ShopfloorError], None],
    ) -> None:
        """Create the permissions. `fail` records an error of our own, after which the agent is killed."""
        self._attempt = attempt
        self._gate = gate
        self._step_key = step_key
        self._launch = launch
        self._child = child
        self._fail = fail
        self._waiting_count = 0
        self._scopes: dict[str, anyio.CancelScope] = {}
        """The requests that have no answer yet, by their ids."""

    def start(self, request: PermissionRequest, tasks: TaskGroup) -> None:
        """Start to decide whether the agent may call a tool. From now on, the request can be withdrawn."""
        if self._launch.answer_permission is not None:
            scope = self._scopes[request.request_id] = anyio.CancelScope()
            tasks.start_soon(self._answer, request, scope, self._launch.answer_permission)

    async def _answer(self, request: PermissionRequest, scope: anyio.CancelScope, encode: _Encoder) -> None:
        """Decide, if need be by asking a person, and tell the agent."""
        try:
            denial: str | None = None
            with scope:
                # A request that was withdrawn before this task began is not asked.
                await anyio.lowlevel.checkpoint()
                denial = await self._find_denial(request)
            self._scopes.pop(request.request_id, None)
            if not scope.cancel_called:
                # Outside of the scope: a withdrawal must not cut the line off.
                await self._child.write(encode(request, denial))
            elif self._gate is not None:
                await self._gate.withdraw(_call_key(request))
        except ShopfloorError as error:
            self._fail(error)
            await self._child.kill()

    def withdraw(self, request_id: str) -> None:
        """Stop waiting for a decision that the agent no longer wants."""
        if request_id in self._scopes:
            self._scopes[request_id].cancel()

    async def _find_denial(self, request: PermissionRequest) -> str | None:
        """Return why the agent may not call the tool; None if it may."""
        gate, tool_input = self._gate, request.tool_input
        names = (request.tool, *request.other_names)
        matching = [name for name in names if gate and matching_patterns(gate.patterns, name, tool_input)]
        if gate is None or not matching:
            is_allowed = self._launch.is_preapproved is not None and self._launch.is_preapproved(request)
            return None if is_allowed else f"this run has no permission to use {request.tool} for this"
        async with AsyncExitStack() as stack:
            if not self._waiting_count:
                # Of several calls at once, the first one releases the slot of the agent.
                await stack.enter_async_context(self._attempt.slot_usage.release_held_slot())
            self._waiting_count += 1
            stack.callback(self._end_wait)
            unapproved = [name for name in matching if await gate.find_pattern(name, tool_input) is not None]
            tool = (unapproved or matching)[0]
            return await gate.check_agent_call(self._step_key, _call_key(request), tool, tool_input)

    def _end_wait(self) -> None:
        self._waiting_count -= 1


def _call_key(request: PermissionRequest) -> str:
    return request.tool_id or request.request_id
