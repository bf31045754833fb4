"""A secret that comes in parts is masked like a complete secret."""

from hypothesis import given
from hypothesis import strategies as st

from shopfloor.log import Masking

letters = st.text("ab", min_size=6, max_size=9)
secrets = st.lists(letters, min_size=1, max_size=3)


@given(secrets, st.data())
def test_a_text_is_masked_the_same_at_any_split(secrets: list[str], data: st.DataObject) -> None:
    hook = Masking(secrets)
    parts = data.draw(st.lists(st.sampled_from(secrets) | st.text("abc", max_size=6), max_size=6))
    whole = "".join(parts)
    split = data.draw(st.integers(0, len(whole)))
    stable_chars = split - hook.pending_secret_bytes(whole[:split].encode())
    assert 0 <= stable_chars <= split
    assert hook.text(whole[:stable_chars]) + hook.text(whole[stable_chars:]) == hook.text(whole)
