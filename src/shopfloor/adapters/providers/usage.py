"""Counting tokens. Mostly one of two counts is nothing yet, and then there is nothing to count."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import astuple

from shopfloor import views
from shopfloor.log import Cost, Usage

NO_USAGE = Usage()


def add_usage(one: Usage, other: Usage) -> Usage:
    return other if one == NO_USAGE else views.add_usage(one, other)


def subtract_usage(total: Usage, part: Usage) -> Usage:
    """What a total has beyond a part of it; never below nothing."""
    if part == NO_USAGE:
        return total
    counts = zip(Usage.__struct_fields__, astuple(total), astuple(part), strict=True)
    return Usage(**{name: max(0, count - taken) for name, count, taken in counts})


PRICE_SOURCE = "genai-prices"


@lru_cache(maxsize=1_000)
def price(model: str, usage: Usage) -> Cost:
    """Without a sum where the model is not on the list: unknown is not free."""
    # Half a second to load, which only those wait for who have something to pay.
    import genai_prices

    read = usage.input + usage.cache_read + usage.cache_write
    tokens = genai_prices.Usage(
        input_tokens=read,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output,
    )
    try:
        usd = float(genai_prices.calc_price(tokens, model_ref=model).total_price)
    except (LookupError, ValueError, AssertionError):
        usd = None
    return Cost(usd=usd, source=PRICE_SOURCE, prices=genai_prices.__version__)
