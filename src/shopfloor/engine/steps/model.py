"""Model steps: the model replies, its tool calls are executed, the model replies again."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt, StepResult, StepTry
from shopfloor.engine.awaited_calls import durable_sleep, finish_durable_sleeps
from shopfloor.engine.partial_message_writer import PartialMessageWriter
from shopfloor.engine.replay_state import ConversationEvent, StepKey
from shopfloor.engine.steps.conversation import (
    Thread,
    is_complete_reply,
    last_reply,
    restore_system_prompt,
    session_id_of,
    text_of,
    to_thread_messages,
    tool_uses,
)
from shopfloor.engine.steps.tools import Tools
from shopfloor.engine.workers.definition import Retry
from shopfloor.errors import ProviderError, RateLimited, RequestRejected, StepFailed, UnknownModel
from shopfloor.limits import MODEL_TRIES, PROVIDER_MESSAGE_CHARS, RATE_LIMIT_WAIT_SECONDS, RATE_LIMIT_WAITS
from shopfloor.log import AssistantMessage, Block, Cost, PartialMessage, Session, TextBlock, Usage, UserMessage
from shopfloor.ports import ModelRequest, Models, Reply, ReplyDelta, ThreadMessage
from shopfloor.views import RATE_LIMIT, add_usage

MODEL_RETRY = Retry(limit=MODEL_TRIES - 1)
"""The default: temporary failures are retried."""


class ModelStepRunner:
    """Runner of one `next-message` step. Replies that are in the log are not requested again."""

    def __init__(
        self,
        attempt: Attempt,
        models: Models,
        tools: Tools,
        thread: Thread,
        *,
        schema: dict[str, Any] | None = None,
        prompt: str | None = None,
    ) -> None:
        """Create the runner. With `prompt` the step first adds a user message."""
        self._attempt = attempt
        self._models = models
        self._tools = tools
        self._thread = thread
        self._schema = schema
        self._prompt = prompt

    async def run(
        self, step_key: StepKey, *, name: str, retry: Retry | None = None, timeout_seconds: float | None = None
    ) -> Any:
        restore_system_prompt(self._thread, self._attempt.conversation(step_key))
        value = await self._attempt.step(
            step_key,
            self._execute,
            name=name,
            kind="next-message",
            retry=retry or MODEL_RETRY,
            timeout_seconds=timeout_seconds,
            repeatable=True,
            session=self._session(step_key),
        )
        self._thread.messages += to_thread_messages(self._attempt.conversation(step_key))
        self._thread.has_system_prompt = self._thread.has_system_prompt or self._prompt is not None
        return value

    def _session(self, step_key: StepKey) -> Session:
        """Return the conversation as the log records it: a session without a process."""
        model = self._thread.model
        return Session(
            provider=model.partition("/")[0],
            access_mode=self._models.access_mode(model),
            session_id=self._thread.session_id or session_id_of(step_key),
        )

    async def _execute(self, step_try: StepTry) -> StepResult:
        if self._prompt is not None and not self._attempt.conversation(step_try.step_key):
            text = TextBlock(fidelity="router", text=self._prompt)
            system = None if self._thread.has_system_prompt else self._thread.system
            await self._attempt.append(UserMessage(system_prompt=system, blocks=[text]), step_try.step_key)
        await self._reject_last_reply(step_try)
        for _ in range(2 * self._thread.max_steps + 1):
            conversation = self._attempt.conversation(step_try.step_key)
            reply = last_reply(conversation)
            if reply is None or all(use.tool_id in self._attempt.replay_state.results for use in tool_uses(reply)):
                if reply is not None and not tool_uses(reply):
                    return self._result(conversation, reply.blocks)
                if sum(is_complete_reply(event) for event in conversation) >= self._thread.max_steps:
                    break
                await self._request_reply(step_try)
            else:
                await self._tools.call_all(self._attempt, step_try.step_key, tool_uses(reply))
        raise StepFailed(
            f"the model did not finish within {self._thread.max_steps} turns", hint="raise `maxSteps` of the thread"
        )

    async def _reject_last_reply(self, step_try: StepTry) -> None:
        """Tell the model why its last reply was rejected, if this is a retry after a reply of the wrong shape."""
        reply = last_reply(self._attempt.conversation(step_try.step_key))
        if step_try.resumed or self._schema is None or reply is None or tool_uses(reply):
            return
        try:
            parse_structured(text_of(reply.blocks), self._schema)
        except ProviderError as error:
            text = f"{error.message[:PROVIDER_MESSAGE_CHARS]}\n\nPlease answer again."
            await self._attempt.append(UserMessage(blocks=[TextBlock(fidelity="router", text=text)]), step_try.step_key)

    def _result(self, conversation: Sequence[ConversationEvent], blocks: list[Block]) -> StepResult:
        text = text_of(blocks)
        usage, cost = _total_usage([event for event in conversation if isinstance(event, AssistantMessage)])
        return StepResult(parse_structured(text, self._schema) if self._schema else text, usage, cost)

    async def _request_reply(self, step_try: StepTry) -> None:
        """Request one reply and record it. If the model fails, use the backup model."""
        for model in (self._thread.model, self._thread.backup_model):
            if model is None:
                continue
            try:
                await self._reply_within_rate_limit(step_try, model)
            except ProviderError:
                if model == self._thread.backup_model or self._thread.backup_model is None:
                    raise
            else:
                return

    async def _reply_within_rate_limit(self, step_try: StepTry, model: str) -> None:
        """Request a reply and wait when the provider limits the rate for a known time. Such waits use up no retries."""
        await finish_durable_sleeps(self._attempt, step_try.step_key, RATE_LIMIT)
        for _ in range(RATE_LIMIT_WAITS):
            try:
                await self._stream_reply(step_try, model)
            except UnknownModel as unknown:
                # A retry would not find the model either.
                raise RequestRejected(unknown.message, hint=unknown.hint) from unknown
            except RateLimited as limited:
                if limited.retry_after is None or limited.retry_after > RATE_LIMIT_WAIT_SECONDS:
                    raise
                await durable_sleep(self._attempt, step_try.step_key, RATE_LIMIT, limited.retry_after)
            else:
                return
        raise RateLimited(f"{model} is still rate-limited after waiting {RATE_LIMIT_WAITS} times")

    async def _stream_reply(self, step_try: StepTry, model: str) -> None:
        message_id = f"msg_{uuid.uuid4().hex}"
        partial = PartialMessage(message_id, model=model)
        partial_writer = PartialMessageWriter(self._attempt.mask)
        request = ModelRequest(
            model=model,
            system=self._thread.system,
            messages=[*self._thread.messages, *to_thread_messages(self._attempt.conversation(step_try.step_key))],
            tools=[tool.spec for tool in self._tools.select(self._thread.tools)],
            thinking=self._thread.thinking,
            temperature=self._thread.temperature,
            schema=self._schema,
        )
        try:
            async with self._attempt.hold_slot(), partial_writer.running():
                async for delta in self._models.reply(request):
                    if isinstance(delta, Reply):
                        # The reply has been paid for, so record it even if the run is being abandoned.
                        with anyio.CancelScope(shield=True):
                            async with partial_writer.lock:
                                await self._record_reply(step_try, message_id, model, delta)
                        partial.clear()
                    else:
                        self._publish_delta(step_try, partial, delta)
                        partial_writer.schedule_write(
                            partial, lambda message: self._attempt.append(message, step_try.step_key)
                        )
        except BaseException:
            mask = self._attempt.mask
            if (interrupted := partial.interrupted(mask and mask.mask_truncated)) is not None:
                with anyio.CancelScope(shield=True):
                    await self._attempt.append(interrupted, step_try.step_key)
            raise

    def _publish_delta(self, step_try: StepTry, partial: PartialMessage, delta: ReplyDelta) -> None:
        tool = {"tool_name": delta.tool_name, "tool_id": delta.tool_id}
        offset = partial.append_text(delta.block, delta.kind, delta.text, **tool)
        self._attempt.publish_delta(
            step_try,
            partial.message_id,
            block=delta.block,
            kind=delta.kind,
            offset=offset,
            text=delta.text,
            **tool,
        )

    async def _record_reply(self, step_try: StepTry, message_id: str, model: str, reply: Reply) -> None:
        message = AssistantMessage(
            message_id=message_id,
            model=reply.model,
            # The name of a model begins with its provider.
            provider=model.partition("/")[0] or None,
            usage=reply.usage,
            cost=reply.cost,
            stop_reason=reply.stop_reason,
            blocks=reply.blocks,
        )
        await self._attempt.append(message, step_try.step_key)


def _total_usage(messages: Sequence[AssistantMessage]) -> tuple[Usage, Cost | None]:
    """Return the sums over all messages of all attempts."""
    usage = Usage()
    cost: Cost | None = None
    for message in messages:
        usage = add_usage(usage, message.usage)
        if message.cost is not None and message.cost.usd is not None:
            cost = msgspec.structs.replace(message.cost, usd=message.cost.usd + ((cost and cost.usd) or 0.0))
    return usage, cost


def parse_structured(text: str, schema: Mapping[str, Any]) -> Any:
    """Decode a JSON reply. Raises `ProviderError` if it does not match the schema."""
    import jsonschema

    try:
        value = msgspec.json.decode(text)
        jsonschema.validate(value, schema)
    except (msgspec.DecodeError, jsonschema.ValidationError) as error:
        raise ProviderError(f"the model's answer does not match the requested schema: {error}") from error
    return value


async def add_message(
    attempt: Attempt, thread: Thread, step_key: StepKey, blocks: list[Block], *, role: str = "user"
) -> None:
    """Add a message to the thread, and to the log unless the log has it from an earlier attempt."""
    restore_system_prompt(thread, attempt.conversation(step_key))
    if not attempt.conversation(step_key):
        if role == "user":
            system = None if thread.has_system_prompt else thread.system
            await attempt.append(UserMessage(system_prompt=system, blocks=blocks), step_key)
        else:
            await attempt.append(AssistantMessage(blocks=blocks, model=None), step_key)
    thread.has_system_prompt = thread.has_system_prompt or role == "user"
    thread.messages.append(ThreadMessage("user" if role == "user" else "assistant", blocks))
