"""What is said twice because a model call was made twice."""

from __future__ import annotations

from collections import deque
from hashlib import sha256

from shopfloor.limits import OPEN_BRANCHES


class Repeats:
    """Tells what a call that was made again repeats from what is new.

    A call whose stream breaks off is made again from its beginning, and messages that it had finished come once more,
    under new ids. Only these are repeats: the same words, in the same order, from the first one on, directly after the
    note of the retry, and of a call that used no tool. Where a tool ran in between, one cannot see whether the words
    are of the call that broke or of the one before it; then they are told as often as they come.
    """

    def __init__(self) -> None:
        self._said: dict[str, deque[bytes]] = {}
        self._expected: dict[str, deque[bytes]] = {}

    def broke_off(self) -> None:
        """The call's stream broke: it will begin again."""
        self._expected = {kind: deque(said) for kind, said in self._said.items()}

    def went_on(self) -> None:
        """What comes next belongs to another call."""
        self._said.clear()
        self._expected.clear()

    def is_repeat(self, kind: str, text: str) -> bool:
        """Whether this was told already; where not, it is kept in mind."""
        mark = sha256(text.encode(errors="replace")).digest()
        expected = self._expected.pop(kind, None)
        if expected and expected[0] == mark:
            expected.popleft()
            self._expected[kind] = expected
            return True
        said = self._said.get(kind)
        if said is None:
            said = self._said[kind] = deque(maxlen=OPEN_BRANCHES)
        for _ in expected or ():
            # This time it says something else: the rest of what it said before will not come again.
            said.pop()
        said.append(mark)
        return False
