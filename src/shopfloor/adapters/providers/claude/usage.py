"""Tokens and money.

Three things in the stream tell of tokens, and none of them all:

- Each message of the session, while it is typed: its own tokens, at once. Sub-agents are not typed.
- `usage` of a result: the session's messages since its last result, without sub-agents; in some ends without the last
  message too.
- `model_usage_since_last_result`: all that was spent, by model, with prices. Where a session works on after its first
  result, results may be held back to the end of the stream, so "since" has nothing to do with what stands before it.
  Older versions only have `modelUsage`, the total of the session, with what it spent before it was resumed.

So what is typed is told at once, and each result tells the rest. (The lines of messages repeat what was known when the
message began, and are never counted.)
"""

from __future__ import annotations

from functools import reduce

import msgspec

from shopfloor.adapters.providers.json_access import Record, count_at, number_at, record_at, text_at
from shopfloor.adapters.providers.usage import NO_USAGE, add_usage, subtract_usage
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import Usage
from shopfloor.ports import UsageDelta


class _Message(msgspec.Struct):
    """One that is being typed."""

    model: str | None
    so_far: Record
    counted: Usage = NO_USAGE


class UsageTracker:
    def __init__(self, *, resumed: bool) -> None:
        self._resumed = resumed
        self._message: _Message | None = None
        self._typed: dict[str, Usage] = {}
        """What was told of messages as they were typed, by model."""
        self._told: dict[str, Usage] = {}
        """All that was told, by model; under no name what is nobody's in particular."""
        self._tree: dict[str, Usage] = {}
        """What the results tell of all that was spent."""
        self._own = NO_USAGE
        """What they tell of the session alone."""
        self._before: Record = {}
        """The last result."""
        self.cost: float | None = 0.0
        """Of all that the results tell; None where a part of it has no price."""

    # As it is typed.

    def message_started(self, message: Record) -> None:
        self._message = _Message(model=text_at(message, "model"), so_far=record_at(message, "usage"))

    def message_updated(self, usage: Record) -> list[UsageDelta]:
        """What the message has come to. Not all that was told at its start need be told again."""
        message = self._message or _Message(model=None, so_far={})
        self._message = message
        message.so_far = {**message.so_far, **{name: count for name, count in usage.items() if count is not None}}
        total = _of_message(message.so_far)
        more, message.counted = subtract_usage(total, message.counted), total
        return self._counted(message.model, more)

    def stream_interrupted(self) -> list[UsageDelta]:
        """There will be no result. What a message had read that was not at its end is spent all the same."""
        message = self._message
        if message is None or message.counted != NO_USAGE:
            return []
        return self._counted(message.model, _of_message(message.so_far))

    def _counted(self, model: str | None, more: Usage) -> list[UsageDelta]:
        if more == NO_USAGE:
            return []
        _add(self._typed, model or "", more)
        _add(self._told, model or "", more)
        # At whose price is told with the result.
        return [UsageDelta(usage=more, model=model)]

    # A result.

    def result(self, record: Record, model: str | None) -> list[UsageDelta]:
        """The rest of what was spent. `model` is the one that the session's messages are of."""
        own = _of_message(record_at(record, "usage"))
        self._own = add_usage(self._own, own)
        models, costs, cost = self._since(record)
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        for name, usage in ({model or "": own} if models is None else models).items():
            _add(self._tree, name, usage)
        self._before = record
        rests = {name: subtract_usage(usage, self._told.get(name, NO_USAGE)) for name, usage in self._tree.items()}
        whole = subtract_usage(_sum(self._tree), _sum(self._told))
        if _sum(rests) != whole:
            # Messages and results do not name a model alike.
            rests = {"": whole}
        spent: list[UsageDelta] = []
        for name, usage in rests.items():
            if usage != NO_USAGE:
                _add(self._told, name, usage)
                # Where a part was told before, at no price, nobody knows the price of the rest.
                usd = costs.get(name) if not self._typed else None
                spent.append(UsageDelta(usage=usage, model=name or None, cost_usd=usd))
        return spent

    def _since(self, record: Record) -> tuple[dict[str, Usage] | None, dict[str, float], float | None]:
        """What was spent since the last result: by model, what that cost, and the sum; None where it is not known."""
        if isinstance(record.get("model_usage_since_last_result"), dict):
            models, costs = _by_model(record_at(record, "model_usage_since_last_result"), {})
            return models, costs, sum(costs.values())
        if self._resumed and not self._before:
            return None, {}, None
        cost = number_at(record, "total_cost_usd")
        if cost is not None:
            cost = max(0.0, cost - (number_at(self._before, "total_cost_usd") or 0.0))
        if not isinstance(record.get("modelUsage"), dict):
            return None, {}, cost
        models, costs = _by_model(record_at(record, "modelUsage"), record_at(self._before, "modelUsage"))
        return models, costs, cost

    # The end.

    def own_usage(self, *, sub_agents: bool, model: str | None) -> tuple[Usage | None, dict[str, Usage]]:
        """What the session itself spent, and the same by model where that is known."""
        if not self._before and not self._typed:
            return None, {}
        if self._before and not sub_agents:
            # Then all is its own, also what it asked models for beside its messages.
            total = _sum(self._told)
            for models in (self._told, self._tree):
                if "" not in models and _sum(models) == total:
                    return total, dict(models)
            return total, {}
        typed = _sum(self._typed)
        if _size(typed) >= _size(self._own):
            return typed, dict(self._typed) if "" not in self._typed else {}
        return self._own, {model: self._own} if model is not None else {}


def _of_message(usage: Record) -> Usage:
    return Usage(
        input=count_at(usage, "input_tokens"),
        output=count_at(usage, "output_tokens"),
        cache_read=count_at(usage, "cache_read_input_tokens"),
        cache_write=count_at(usage, "cache_creation_input_tokens"),
        reasoning=count_at(record_at(usage, "output_tokens_details"), "thinking_tokens"),
    )


def _of_model(usage: Record) -> Usage:
    return Usage(
        input=count_at(usage, "inputTokens"),
        output=count_at(usage, "outputTokens"),
        cache_read=count_at(usage, "cacheReadInputTokens"),
        cache_write=count_at(usage, "cacheCreationInputTokens"),
        reasoning=count_at(usage, "thinkingTokens"),
    )


def _by_model(now: Record, before: Record) -> tuple[dict[str, Usage], dict[str, float]]:
    models: dict[str, Usage] = {}
    costs: dict[str, float] = {}
    for model in now:
        spent, had = record_at(now, model), record_at(before, model)
        # Without what a setting adds to it, for example `[1m]`.
        name = text_at(spent, "canonicalModel") or model
        _add(models, name, subtract_usage(_of_model(spent), _of_model(had) if had else NO_USAGE))
        cost = (number_at(spent, "costUSD") or 0.0) - (number_at(had, "costUSD") or 0.0)
        costs[name] = costs.get(name, 0.0) + max(0.0, cost)
    return models, costs


def _add(models: dict[str, Usage], model: str, usage: Usage) -> None:
    # Nobody uses so many, but what is remembered has a limit.
    name = model if model in models or len(models) < OPEN_BRANCHES else ""
    models[name] = add_usage(models.get(name, NO_USAGE), usage)


def _sum(models: dict[str, Usage]) -> Usage:
    return reduce(add_usage, models.values(), NO_USAGE)


def _size(usage: Usage) -> int:
    return usage.input + usage.output + usage.cache_read + usage.cache_write
