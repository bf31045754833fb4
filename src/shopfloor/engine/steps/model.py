"""Model steps: the model answers, tools are called, the model answers again."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import msgspec

from shopfloor.engine.attempt import Attempt, StepResult, Trying
from shopfloor.engine.awaited_calls import rest_for, rest_on
from shopfloor.engine.journal import Place, Said
from shopfloor.engine.piece_writer import PieceWriter
from shopfloor.engine.steps.threads import Thread, is_whole, last_reply, messages_of, text_of, uses_of
from shopfloor.engine.steps.tools import Tools
from shopfloor.engine.workers.definition import Retry
from shopfloor.errors import ProviderError, RateLimited, RequestRejected, StepFailed, UnknownModel
from shopfloor.limits import MODEL_TRIES, PROVIDER_WORDS_CHARS, RATE_LIMIT_WAIT_SECONDS, RATE_LIMIT_WAITS
from shopfloor.log import AssistantMessage, Block, Cost, PartialMessage, TextBlock, Usage, UserMessage
from shopfloor.ports import ModelRequest, Models, Reply, ReplyDelta, ThreadMessage
from shopfloor.views import RATE_LIMIT, added

MODEL_RETRY = Retry(limit=MODEL_TRIES - 1)
"""Where a step says nothing of it: what passes by itself is tried again."""


class ModelStep:
    """One `next-message`. What the log has of it already is not asked for again."""

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
        """With `prompt` the step says something first."""
        self._attempt = attempt
        self._models = models
        self._tools = tools
        self._thread = thread
        self._schema = schema
        self._prompt = prompt

    async def run(self, place: Place, *, name: str, retry: Retry | None = None) -> Any:
        value = await self._attempt.step(
            place, self._work, name=name, kind="next-message", retry=retry or MODEL_RETRY, repeatable=True
        )
        self._thread.messages += messages_of(self._attempt.said(place))
        self._thread.told = self._thread.told or self._prompt is not None
        return value

    async def _work(self, trying: Trying) -> StepResult:
        if self._prompt is not None and not self._attempt.said(trying.place):
            text = TextBlock(fidelity="router", text=self._prompt)
            system = None if self._thread.told else self._thread.system
            await self._attempt.append(UserMessage(system_prompt=system, blocks=[text]), trying.place)
        await self._object(trying)
        for _ in range(2 * self._thread.max_steps + 1):
            said = self._attempt.said(trying.place)
            reply = last_reply(said)
            if reply is None or all(use.tool_id in self._attempt.journal.results for use in uses_of(reply)):
                if reply is not None and not uses_of(reply):
                    return self._result(said, reply.blocks)
                if sum(is_whole(one) for one in said) >= self._thread.max_steps:
                    break
                await self._ask(trying)
            else:
                await self._tools.call_all(self._attempt, trying.place, uses_of(reply))
        raise StepFailed(
            f"the model wanted more than {self._thread.max_steps} turns", hint="raise `maxSteps` of the thread"
        )

    async def _object(self, trying: Trying) -> None:
        """A further try, though the model has answered: the answer had the wrong shape. The model is told."""
        reply = last_reply(self._attempt.said(trying.place))
        if trying.resumed or self._schema is None or reply is None or uses_of(reply):
            return
        try:
            structured(text_of(reply.blocks), self._schema)
        except ProviderError as wrong:
            text = f"{wrong.message[:PROVIDER_WORDS_CHARS]}\n\nPlease answer again."
            await self._attempt.append(UserMessage(blocks=[TextBlock(fidelity="router", text=text)]), trying.place)

    def _result(self, said: Sequence[Said], blocks: list[Block]) -> StepResult:
        text = text_of(blocks)
        usage, cost = totals([one for one in said if isinstance(one, AssistantMessage)])
        return StepResult(structured(text, self._schema) if self._schema else text, usage, cost)

    async def _ask(self, trying: Trying) -> None:
        """One answer of the model, into the log; of the backup where the first cannot."""
        for model in (self._thread.model, self._thread.backup_model):
            if model is None:
                continue
            try:
                await self._patiently(trying, model)
            except ProviderError:
                if model == self._thread.backup_model or self._thread.backup_model is None:
                    raise
            else:
                return

    async def _patiently(self, trying: Trying, model: str) -> None:
        """A provider that says when it will answer again is waited for: that burns no retries."""
        await rest_on(self._attempt, trying.place, RATE_LIMIT)
        for _ in range(RATE_LIMIT_WAITS):
            try:
                await self._answer(trying, model)
            except UnknownModel as unknown:
                # No further try would find it.
                raise RequestRejected(unknown.message, hint=unknown.hint) from unknown
            except RateLimited as limited:
                if limited.retry_after is None or limited.retry_after > RATE_LIMIT_WAIT_SECONDS:
                    raise
                await rest_for(self._attempt, trying.place, RATE_LIMIT, limited.retry_after)
            else:
                return
        raise RateLimited(f"{model} still limits our rate after {RATE_LIMIT_WAITS} waits")

    async def _answer(self, trying: Trying, model: str) -> None:
        message_id = f"msg_{uuid.uuid4().hex}"
        partial = PartialMessage(message_id, model=model)
        pieces = PieceWriter(self._attempt.mask)
        request = ModelRequest(
            model=model,
            system=self._thread.system,
            messages=[*self._thread.messages, *messages_of(self._attempt.said(trying.place))],
            tools=[tool.spec for tool in self._tools.named(self._thread.tools)],
            thinking=self._thread.thinking,
            temperature=self._thread.temperature,
            schema=self._schema,
        )
        try:
            async with self._attempt.working(), pieces.running():
                async for delta in self._models.reply(request):
                    if isinstance(delta, Reply):
                        # It has been paid for: it is on record, also where the run is being left just now.
                        with anyio.CancelScope(shield=True):
                            async with pieces.lock:
                                await self._keep(trying, message_id, delta)
                        partial.clear()
                    else:
                        self._tell(trying, partial, delta)
                        pieces.grown(partial, lambda piece: self._attempt.append(piece, trying.place))
        except BaseException:
            mask = self._attempt.mask
            if (cut_off := partial.interrupted(mask and mask.cut_off)) is not None:
                with anyio.CancelScope(shield=True):
                    await self._attempt.append(cut_off, trying.place)
            raise

    def _tell(self, trying: Trying, partial: PartialMessage, delta: ReplyDelta) -> None:
        tool = {"tool_name": delta.tool_name, "tool_id": delta.tool_id}
        offset = partial.grow(delta.block, delta.kind, delta.text, **tool)
        self._attempt.tell(
            trying,
            partial.message_id,
            block=delta.block,
            kind=delta.kind,
            offset=offset,
            text=delta.text,
            **tool,
        )

    async def _keep(self, trying: Trying, message_id: str, reply: Reply) -> None:
        message = AssistantMessage(
            message_id=message_id,
            model=reply.model,
            usage=reply.usage,
            cost=reply.cost,
            stop_reason=reply.stop_reason,
            blocks=reply.blocks,
        )
        await self._attempt.append(message, trying.place)


def totals(messages: Sequence[AssistantMessage]) -> tuple[Usage, Cost | None]:
    """Each message counts once, whichever attempt it was made in."""
    usage = Usage()
    cost: Cost | None = None
    for message in messages:
        usage = added(usage, message.usage)
        if message.cost is not None and message.cost.usd is not None:
            cost = msgspec.structs.replace(message.cost, usd=message.cost.usd + ((cost and cost.usd) or 0.0))
    return usage, cost


def structured(text: str, schema: Mapping[str, Any]) -> Any:
    """The value that a model gave as JSON, if it is of the shape that was asked for."""
    import jsonschema

    try:
        value = msgspec.json.decode(text)
        jsonschema.validate(value, schema)
    except (msgspec.DecodeError, jsonschema.ValidationError) as error:
        raise ProviderError(f"the model's answer does not have the shape that was asked for: {error}") from error
    return value


async def say(attempt: Attempt, thread: Thread, place: Place, blocks: list[Block], *, role: str = "user") -> None:
    """A message of ours, in the log and in the thread. What the log has is not written again."""
    if not attempt.said(place):
        if role == "user":
            system = None if thread.told else thread.system
            await attempt.append(UserMessage(system_prompt=system, blocks=blocks), place)
        else:
            await attempt.append(AssistantMessage(blocks=blocks, model=None), place)
    thread.told = thread.told or role == "user"
    thread.messages.append(ThreadMessage("user" if role == "user" else "assistant", blocks))
