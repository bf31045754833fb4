"""Tokens and costs of a Claude Code session.

Three records count tokens, and none of them counts all:

- Each message of the session, while it streams: its own tokens, at once. Messages of sub-agents are not streamed.
- `usage` of a result: the messages of the session since its last result, without sub-agents; after some kinds of end
  also without the last message.
- `model_usage_since_last_result`: all tokens by model, with prices. If a session continues after its first result, its
  results may be held back to the end of the stream, so "since" does not refer to the records before a result.
  Older versions only have `modelUsage`: the total of the session, including its tokens before it was resumed.

So the tracker reports streamed tokens at once, and the rest with each result. The lines of complete messages repeat
the counts from the start of the message and are never counted.
"""

from __future__ import annotations

from functools import reduce

import msgspec

from shopfloor.adapters.providers.json_access import Record, count_at, number_at, record_at, text_at
from shopfloor.adapters.providers.usage import NO_USAGE, add_usage, subtract_usage_clamped
from shopfloor.limits import OPEN_BRANCHES
from shopfloor.log import Usage
from shopfloor.ports import UsageDelta


class _Message(msgspec.Struct):
    """A message that is being streamed."""

    model: str | None
    counts: Record
    reported: Usage = NO_USAGE


class UsageTracker:
    """Usage of a session and its sub-agents: what to report next, and the totals at the end."""

    def __init__(self, *, resumed: bool) -> None:
        self._resumed = resumed
        self._message: _Message | None = None
        self._streamed: dict[str, Usage] = {}
        """Reported while messages were streamed, by model."""
        self._reported: dict[str, Usage] = {}
        """All that was reported, by model; under "" what no model can be named for."""
        self._total_by_model: dict[str, Usage] = {}
        """All tokens by the results, sub-agents included, by model."""
        self._own_total = NO_USAGE
        """Tokens of the session alone, by the results."""
        self._last_result: Record = {}
        """The last result."""
        self.cost: float | None = 0.0
        """The cost of all results; None if a part of it has no price."""

    # Streamed messages.

    def message_started(self, message: Record) -> None:
        """Start to count a message."""
        self._message = _Message(model=text_at(message, "model"), counts=record_at(message, "usage"))

    def message_updated(self, usage: Record) -> list[UsageDelta]:
        """Report what a message used since its last update. An update may leave out counts that did not change."""
        message = self._message or _Message(model=None, counts={})
        self._message = message
        message.counts = {**message.counts, **{name: count for name, count in usage.items() if count is not None}}
        total = message_usage(message.counts)
        increase, message.reported = subtract_usage_clamped(total, message.reported), total
        return self._report(message.model, increase)

    def stream_interrupted(self) -> list[UsageDelta]:
        """Report the input of a message that broke off: it was spent, and no result follows."""
        message = self._message
        if message is None or message.reported != NO_USAGE:
            return []
        return self._report(message.model, message_usage(message.counts))

    def _report(self, model: str | None, increase: Usage) -> list[UsageDelta]:
        if increase == NO_USAGE:
            return []
        _add(self._streamed, model or "", increase)
        _add(self._reported, model or "", increase)
        # No cost: the price is known with the result only.
        return [UsageDelta(usage=increase, model=model)]

    # Results.

    def result(self, record: Record, model: str | None) -> list[UsageDelta]:
        """Report the tokens that no message reported. `model` is the model of the session's messages."""
        own = message_usage(record_at(record, "usage"))
        self._own_total = add_usage(self._own_total, own)
        models, costs, cost = self._since_last_result(record)
        self.cost = None if self.cost is None or cost is None else self.cost + cost
        for name, usage in ({model or "": own} if models is None else models).items():
            _add(self._total_by_model, name, usage)
        self._last_result = record
        remainders = {
            name: subtract_usage_clamped(usage, self._reported.get(name, NO_USAGE))
            for name, usage in self._total_by_model.items()
        }
        remainder = subtract_usage_clamped(_sum(self._total_by_model), _sum(self._reported))
        if _sum(remainders) != remainder:
            # Messages and results use different names for a model.
            remainders = {"": remainder}
        deltas: list[UsageDelta] = []
        for name, usage in remainders.items():
            if usage != NO_USAGE:
                _add(self._reported, name, usage)
                # The cost covers all tokens of the model. If some were reported before, the price of the rest is
                # unknown.
                usd = costs.get(name) if not self._streamed else None
                deltas.append(UsageDelta(usage=usage, model=name or None, cost_usd=usd))
        return deltas

    def _since_last_result(self, record: Record) -> tuple[dict[str, Usage] | None, dict[str, float], float | None]:
        """Return the tokens since the last result by model, their costs by model, and the total cost.

        The tokens, or the total cost, are None if they are not known.
        """
        if isinstance(record.get("model_usage_since_last_result"), dict):
            models, costs = _usage_by_model(record_at(record, "model_usage_since_last_result"), {})
            return models, costs, sum(costs.values())
        if self._resumed and not self._last_result:
            return None, {}, None
        cost = number_at(record, "total_cost_usd")
        if cost is not None:
            cost = max(0.0, cost - (number_at(self._last_result, "total_cost_usd") or 0.0))
        if not isinstance(record.get("modelUsage"), dict):
            return None, {}, cost
        models, costs = _usage_by_model(record_at(record, "modelUsage"), record_at(self._last_result, "modelUsage"))
        return models, costs, cost

    # The end.

    def own_usage(self, *, sub_agents: bool, model: str | None) -> tuple[Usage | None, dict[str, Usage]]:
        """Return the tokens of the session itself, and the same by model if the models are known."""
        if not self._last_result and not self._streamed:
            return None, {}
        if self._last_result and not sub_agents:
            # Without sub-agents all tokens belong to the session, also those of model calls beside its messages.
            total = _sum(self._reported)
            for models in (self._reported, self._total_by_model):
                if "" not in models and _sum(models) == total:
                    return total, dict(models)
            return total, {}
        streamed = _sum(self._streamed)
        if _token_count(streamed) >= _token_count(self._own_total):
            return streamed, dict(self._streamed) if "" not in self._streamed else {}
        return self._own_total, {model: self._own_total} if model is not None else {}


def message_usage(usage: Record) -> Usage:
    """Convert the counts of a message or of a result's `usage`."""
    return Usage(
        input=count_at(usage, "input_tokens"),
        output=count_at(usage, "output_tokens"),
        cache_read=count_at(usage, "cache_read_input_tokens"),
        cache_write=count_at(usage, "cache_creation_input_tokens"),
        reasoning=count_at(record_at(usage, "output_tokens_details"), "thinking_tokens"),
    )


def _model_usage(usage: Record) -> Usage:
    """Convert the counts of a model in a result."""
    return Usage(
        input=count_at(usage, "inputTokens"),
        output=count_at(usage, "outputTokens"),
        cache_read=count_at(usage, "cacheReadInputTokens"),
        cache_write=count_at(usage, "cacheCreationInputTokens"),
        reasoning=count_at(usage, "thinkingTokens"),
    )


def _usage_by_model(totals: Record, earlier_totals: Record) -> tuple[dict[str, Usage], dict[str, float]]:
    """Return the tokens and the costs by model that `totals` has beyond `earlier_totals`."""
    models: dict[str, Usage] = {}
    costs: dict[str, float] = {}
    for model in totals:
        total, earlier = record_at(totals, model), record_at(earlier_totals, model)
        # The canonical name has no suffix from a setting, such as `[1m]`.
        name = text_at(total, "canonicalModel") or model
        _add(models, name, subtract_usage_clamped(_model_usage(total), _model_usage(earlier) if earlier else NO_USAGE))
        cost = (number_at(total, "costUSD") or 0.0) - (number_at(earlier, "costUSD") or 0.0)
        costs[name] = costs.get(name, 0.0) + max(0.0, cost)
    return models, costs


def _add(models: dict[str, Usage], model: str, usage: Usage) -> None:
    # A session never uses so many models, but memory must be bounded whatever a stream contains.
    name = model if model in models or len(models) < OPEN_BRANCHES else ""
    models[name] = add_usage(models.get(name, NO_USAGE), usage)


def _sum(models: dict[str, Usage]) -> Usage:
    return reduce(add_usage, models.values(), NO_USAGE)


def _token_count(usage: Usage) -> int:
    return usage.input + usage.output + usage.cache_read + usage.cache_write
