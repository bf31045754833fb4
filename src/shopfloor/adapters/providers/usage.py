"""Token counts, and their price by the price list of genai-prices."""

from __future__ import annotations

from functools import lru_cache

from msgspec.structs import astuple

from shopfloor import views
from shopfloor.log import Cost, Usage

NO_USAGE = Usage()
PRICE_SOURCE = "genai-prices"


def add_usage(first: Usage, second: Usage) -> Usage:
    """Add two counts. Fast where `first` is empty, which is the usual case."""
    return second if first == NO_USAGE else views.add_usage(first, second)


def subtract_usage_clamped(total: Usage, part: Usage) -> Usage:
    """Return what `total` counts beyond `part`, never below zero."""
    if part == NO_USAGE:
        return total
    counts = zip(Usage.__struct_fields__, astuple(total), astuple(part), strict=True)
    return Usage(**{name: max(0, count - part_count) for name, count, part_count in counts})


@lru_cache(maxsize=1_000)
def price(model: str, usage: Usage) -> Cost:
    """Return the cost of `usage`. Its `usd` is None for a model that is not on the price list: unknown is not free."""
    # Importing takes half a second, so only a run that has a cost pays for it.
    import genai_prices

    input_tokens = usage.input + usage.cache_read + usage.cache_write
    tokens = genai_prices.Usage(
        input_tokens=input_tokens,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output,
    )
    try:
        usd = float(genai_prices.calc_price(tokens, model_ref=model).total_price)
    except (LookupError, ValueError, AssertionError):
        usd = None
    return Cost(usd=usd, source=PRICE_SOURCE, prices=genai_prices.__version__)
