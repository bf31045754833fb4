"""What tokens cost, by the price list of genai-prices."""

from __future__ import annotations

from functools import lru_cache

from shopfloor.log import Cost, Usage

SOURCE = "genai-prices"


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
    return Cost(usd=usd, source=SOURCE, prices=genai_prices.__version__)
