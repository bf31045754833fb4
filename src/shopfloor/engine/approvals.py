"""Approvals: a person is asked before a call is made, and the answer is a part of the log (ADR 30).

The request is a `tool.call` of its own, with `awaits` of the kind `approval`; its result is the decision. So the log
has the intent before the effect, the wait survives restarts, and of several answers the first counts.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any, Final, cast

import msgspec

from shopfloor.decoding import convert, decode_json
from shopfloor.engine.attempt import Attempt
from shopfloor.engine.awaited_calls import wait_for_answer
from shopfloor.engine.replay_state import AGENT, StepKey, call_digest
from shopfloor.engine.workers.approval_patterns import matching_patterns, tool_part
from shopfloor.errors import AnswerTimeout, InvalidParameter, NotFoundError, ResourceLimit
from shopfloor.limits import APPROVAL_DIFF_CHARS, APPROVAL_RULES, APPROVAL_TIMEOUT_SECONDS
from shopfloor.log import Awaits, RunStarted, ToolCall, ToolResult, format_timestamp, now
from shopfloor.ports import ApprovalRule, Blobs, CallResult, ControlMessage
from shopfloor.views import APPROVAL, APPROVAL_OPTIONS, COMMAND_TOOL, as_text, format_step_key

_FOLDER: Final = "approvals"
_ANSWERS: Final = {
    **dict.fromkeys((APPROVAL_OPTIONS[0], "yes", "y", "allow", "once"), "once"),
    **dict.fromkeys((APPROVAL_OPTIONS[1], "run", "approve-run"), "run"),
    **dict.fromkeys((APPROVAL_OPTIONS[2], "always", "approve-always"), "always"),
}
_DENIALS: Final = frozenset({APPROVAL_OPTIONS[3], "no", "n", "reject", "denied"})
DENIED: Final = "denied"


class _Decision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to an approval, as programs send it."""

    decision: str
    scope: str | None = None
    message: str | None = None


def parse_approval(answer: CallResult) -> CallResult:
    """Return the answer to an approval in the one form that logs have. Raises `InvalidParameter`.

    Approved: the result has `decision` and `scope`. Denied: the error has the reason for the agent.
    """
    if answer.error is not None:
        return _denial(answer.call_id, answer.error)
    result: Any = answer.result
    if isinstance(result, bool):
        result = APPROVAL_OPTIONS[0] if result else APPROVAL_OPTIONS[3]
    if isinstance(result, str):
        word, _, message = result.partition(":")
        decided = _Decision(decision=" ".join(word.lower().split()), message=message.strip() or None)
    else:
        try:
            decided = convert(result, _Decision)
        except msgspec.ValidationError as error:
            raise _invalid_answer(answer, str(error)) from error
    if decided.decision in _DENIALS:
        return _denial(answer.call_id, decided.message)
    scope = decided.scope or _ANSWERS.get(decided.decision)
    if decided.decision not in _ANSWERS or scope not in _ANSWERS.values() or decided.message is not None:
        raise _invalid_answer(answer, as_text(result))
    return CallResult(call_id=answer.call_id, result={"decision": "approve", "scope": scope})


def _denial(call_id: str, message: str | None) -> CallResult:
    text = (message or "").strip().removeprefix(f"{DENIED}:").strip()
    return CallResult(call_id=call_id, error=f"{DENIED}: {text}" if text and text != DENIED else DENIED)


def _invalid_answer(answer: CallResult, reason: str) -> InvalidParameter:
    return InvalidParameter(
        f"the call {answer.call_id!r} asks for an approval, and this is no answer to it: {reason}",
        hint=f"answer with one of: {', '.join(APPROVAL_OPTIONS)}; a denial may have a reason: `deny: REASON`",
    )


class ApprovalRules:
    """The durable rules: calls that were approved for always, by a worker or by an agent in a folder."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def list(self) -> list[ApprovalRule]:
        """Return all rules, newest first."""
        contents = [await self._blobs.get(f"{_FOLDER}/{info.name}") for info in await self._blobs.list(_FOLDER)]
        return [decode_json(content, ApprovalRule) for content in contents if content is not None]

    async def has(self, first: RunStarted, pattern: str) -> bool:
        """Return whether the worker of a run may make the calls of a pattern."""
        return await self._blobs.get(f"{_FOLDER}/{_rule_id(first, pattern)}") is not None

    async def add(self, first: RunStarted, pattern: str, run_id: str) -> None:
        """Store a rule durably. An existing rule stays as it is."""
        rule_id = _rule_id(first, pattern)
        if await self._blobs.get(f"{_FOLDER}/{rule_id}") is not None:
            return
        if len(await self._blobs.list(_FOLDER)) >= APPROVAL_RULES:
            raise ResourceLimit(f"there are {APPROVAL_RULES:,} rules of approvals", hint="revoke some of them")
        rule = ApprovalRule(
            id=rule_id,
            worker=first.name,
            origin=first.origin,
            folder=_rule_folder(first),
            pattern=pattern,
            run_id=run_id,
            created_at=now(),
        )
        await self._blobs.put(f"{_FOLDER}/{rule_id}", msgspec.json.encode(rule))

    async def revoke(self, rule_id: str) -> ApprovalRule:
        """Delete the rule whose id is or begins with this text. Raises `NotFoundError`, also if several match."""
        matching = [rule for rule in await self.list() if rule_id and rule.id.startswith(rule_id)]
        if len(matching) != 1:
            found = f"{len(matching)} rules of approvals begin" if matching else "no rule of approvals begins"
            raise NotFoundError(f"{found} with {rule_id!r}", hint="`shopfloor approvals list` lists the rules")
        await self._blobs.delete(f"{_FOLDER}/{matching[0].id}")
        return matching[0]


async def store_rule(rules: ApprovalRules, attempt: Attempt, message: ControlMessage) -> None:
    """Store the rule that an answer for always makes.

    The caller records the answer afterwards: if the host is lost in between, the next attempt gets the message again.
    """
    state, call_id = attempt.replay_state, str(message.body.get("call_id"))
    approval, result = state.approvals.get(call_id), message.body.get("result")
    scope = cast("dict[str, Any]", result).get("scope") if isinstance(result, dict) else None
    if approval is None or state.first is None or call_id not in state.pending_call_ids:
        return
    if scope == "always":
        await rules.add(state.first, approval.pattern, attempt.run_id)


def _rule_id(first: RunStarted, pattern: str) -> str:
    key = msgspec.json.encode((first.name, first.origin, _rule_folder(first), pattern))
    return hashlib.sha256(key).hexdigest()[:16]


def _rule_folder(first: RunStarted) -> str | None:
    """Return the folder that a rule is limited to: an agent without a worker has the same origin in all folders."""
    return first.cwd if first.kind == AGENT else None


class ApprovalGate:
    """Asks before the calls of a step that match a pattern: a pattern of the run, of the worker or of the step."""

    def __init__(
        self, attempt: Attempt, rules: ApprovalRules, patterns: tuple[str, ...], timeout_seconds: float | None
    ) -> None:
        self._attempt = attempt
        self._rules = rules
        self.patterns = patterns
        self._used: set[str] = set()
        """The approvals that an agent waits for or has got, in this attempt."""
        self._agent_calls: dict[str, str] = {}
        """The approval of each call that an agent asked for."""
        self._timeout_seconds = timeout_seconds or APPROVAL_TIMEOUT_SECONDS

    def with_patterns(self, patterns: list[str] | tuple[str, ...] | None) -> ApprovalGate:
        """Return the gate of a step that has patterns of its own."""
        added = tuple(pattern for pattern in patterns or () if pattern not in self.patterns)
        return ApprovalGate(self._attempt, self._rules, (*self.patterns, *added), self._timeout_seconds)

    def agent_patterns(self, own_tools: set[str]) -> list[str]:
        """Return the patterns that concern an agent: not those for commands and tools that the engine executes."""
        return [pattern for pattern in self.patterns if tool_part(pattern) not in {COMMAND_TOOL, *own_tools}]

    async def request(
        self, step_key: StepKey, call_key: str, tool: str, tool_input: Any, *, more: int = 0
    ) -> str | None:
        """Record a request for approval unless the log has it; return its id. None if the call needs no approval.

        `call_key` identifies the call in the run, also in later attempts.
        """
        approval_id = self._newest_id(call_key)
        if self._is_current(approval_id):
            if self._is_same_call(approval_id, tool, tool_input):
                return approval_id
            # A worker that is executed again may make another call here. A decision holds for the call that was shown.
            await self._close(approval_id, "the worker now makes another call")
            approval_id = self._id_after(call_key, approval_id)
        pattern = await self.find_pattern(tool, tool_input)
        if pattern is None:
            return None
        until = format_timestamp(int((time.time() + self._timeout_seconds) * 1000))
        call = ToolCall(
            name=APPROVAL,
            call_id=approval_id,
            input=_describe(tool, tool_input, pattern, self._attempt.replay_state.first),
            output=None,
            fidelity="router",
            awaits=Awaits(kind=APPROVAL, until=until, more=more),
        )
        await self._attempt.append(call, step_key)
        return approval_id

    def _newest_id(self, call_key: str) -> str:
        """Return the id of the newest request for this call, or of the first."""
        newest, state = f"{APPROVAL}_{call_key}", self._attempt.replay_state
        while (following := self._id_after(call_key, newest)) in state.approvals:
            newest = following
        return newest

    @staticmethod
    def _id_after(call_key: str, approval_id: str) -> str:
        number = approval_id.removeprefix(f"{APPROVAL}_{call_key}").removeprefix(".")
        return f"{APPROVAL}_{call_key}.{int(number or 1) + 1}"

    def _is_current(self, approval_id: str) -> bool:
        """Return whether the log has this request, decided or open."""
        state = self._attempt.replay_state
        return approval_id in state.results or (approval_id in state.calls and approval_id not in state.stale_calls)

    def _is_same_call(self, approval_id: str, tool: str, tool_input: Any) -> bool:
        approval, mask = self._attempt.replay_state.approvals.get(approval_id), self._attempt.mask
        # The log has the call with its secrets masked.
        recorded = tool_input if mask is None else mask({"input": tool_input})["input"]
        return approval is None or approval.digest in (call_digest(tool, tool_input), call_digest(tool, recorded))

    async def find_pattern(self, tool: str, tool_input: Any) -> str | None:
        """Return the pattern because of which a call has to be approved; None if it needs no approval (any more).

        A call may match several patterns, as `git status && rm -rf x` does. It is asked for while one of them was not
        approved for the run or for always; the decision on the call that was shown then counts for all of them.
        """
        state = self._attempt.replay_state
        for pattern in matching_patterns(self.patterns, tool, tool_input):
            has_rule = state.first is not None and await self._rules.has(state.first, pattern)
            if not has_rule and pattern not in state.approved_patterns:
                return pattern
        return None

    async def wait(self, approval_id: str) -> str | None:
        """Wait for the decision. Return why the call is denied, or None if it is approved."""
        state = self._attempt.replay_state
        recorded = state.calls.get(approval_id)
        awaits = recorded[1].awaits if recorded is not None else None
        try:
            result = await wait_for_answer(self._attempt, approval_id, awaits or Awaits(kind=APPROVAL))
        except AnswerTimeout as timeout:
            return f"{DENIED}: {timeout.message}"
        if result.error is not None:
            return result.error if result.error.startswith(DENIED) else f"{DENIED}: {result.error}"
        return None

    async def check_agent_call(self, step_key: StepKey, call_key: str, tool: str, tool_input: Any) -> str | None:
        """Ask for approval of a call of an agent, as `check` does.

        An agent that was interrupted makes its call again, under another id. It then gets the decision on the first
        request, which may have been made meanwhile.
        """
        approval_id = self._find_repeated(step_key, tool, tool_input)
        approval_id = approval_id or await self.request(step_key, call_key, tool, tool_input)
        if approval_id is None:
            return None
        self._used.add(approval_id)
        self._agent_calls[call_key] = approval_id
        try:
            return await self.wait(approval_id)
        except BaseException:
            # The agent was interrupted before it got the decision.
            self._used.discard(approval_id)
            raise

    def _find_repeated(self, step_key: StepKey, tool: str, tool_input: Any) -> str | None:
        """Return a request for the same call that no agent waits for, and whose decision none has got."""
        state, digest = self._attempt.replay_state, call_digest(tool, tool_input)
        for approval_id, approval in state.approvals.items():
            is_open = approval_id in state.calls and approval_id not in state.stale_calls
            is_new = is_open or approval.answered_attempt == state.attempt
            if (approval.step_key, approval.digest) == (step_key, digest) and is_new and approval_id not in self._used:
                return approval_id
        return None

    async def withdraw(self, call_key: str) -> None:
        """Record that an agent no longer wants to make a call, unless the call has a decision."""
        await self._close(
            self._agent_calls.get(call_key) or self._newest_id(call_key), "the agent withdrew the request"
        )

    async def _close(self, approval_id: str, reason: str) -> None:
        """Record that a request needs no decision any more, unless it has one."""
        async with self._attempt.answer_lock:
            recorded = self._attempt.replay_state.calls.get(approval_id)
            if recorded is not None:
                step_key, call = recorded
                result = ToolResult(
                    name=call.name,
                    call_id=approval_id,
                    input=None,
                    output=None,
                    error=f"{DENIED}: {reason}",
                    fidelity="router",
                )
                await self._attempt.append(result, step_key)

    async def check(self, step_key: StepKey, call_key: str, tool: str, tool_input: Any) -> str | None:
        """Ask for approval if the call needs it. Return why the call is denied, or None if it may be made."""
        approval_id = await self.request(step_key, call_key, tool, tool_input)
        return None if approval_id is None else await self.wait(approval_id)


def step_call_key(step_key: StepKey, try_: int) -> str:
    """Return the key of the call of a step that makes one call per try."""
    return f"{format_step_key(*step_key)}_{try_}"


def _describe(tool: str, tool_input: Any, pattern: str, first: RunStarted | None) -> dict[str, Any]:
    """Return what the person sees: the call, for an edit its difference, and what an approval for always holds for."""
    described: dict[str, Any] = {"tool": tool, "input": tool_input, "pattern": pattern}
    if first is not None:
        described["worker"] = first.name
        described |= {"folder": folder} if (folder := _rule_folder(first)) is not None else {}
    fields = cast("dict[str, Any]", tool_input) if isinstance(tool_input, dict) else {}
    old, new = fields.get("old_string"), fields.get("new_string")
    if isinstance(old, str) and isinstance(new, str):
        import difflib

        lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
        described["diff"] = "\n".join(list(lines)[2:])[:APPROVAL_DIFF_CHARS]
    return {**described, "options": list(APPROVAL_OPTIONS)}
