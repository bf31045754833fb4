"""OpenAI's two APIs, Responses and Chat Completions, told apart by the shape of what they say."""

from __future__ import annotations

from shopfloor.adapters.providers.http.body import BodyNormaliser, Dialect
from shopfloor.adapters.providers.http.failures import error_note, failure
from shopfloor.adapters.providers.http.openai_chat import ChatCompletions
from shopfloor.adapters.providers.http.openai_responses import Responses
from shopfloor.adapters.providers.http.reply import Reply
from shopfloor.adapters.providers.reading import Record
from shopfloor.log import RunError, Status
from shopfloor.ports import Report


class OpenAINormaliser(BodyNormaliser):
    def __init__(self) -> None:
        super().__init__(_Either())


class _Either:
    """The API that it turns out to be. An error looks the same for both, and like most others that speak so."""

    def __init__(self) -> None:
        self._dialect: Dialect | None = None
        self._error: RunError | None = None
        self._nothing = Reply()

    @property
    def reply(self) -> Reply:
        return self._dialect.reply if self._dialect is not None else self._nothing

    @property
    def over(self) -> bool:
        return self._error is not None or (self._dialect is not None and self._dialect.over)

    @property
    def status(self) -> Status:
        return "failed" if self._error is not None or self._dialect is None else self._dialect.status

    @property
    def error(self) -> RunError | None:
        return self._error if self._error is not None or self._dialect is None else self._dialect.error

    def event(self, record: Record) -> list[Report] | None:
        dialect = self._found(record)
        reports = dialect.event(record) if dialect is not None else None
        return reports if reports is not None else self._failed(record)

    def whole(self, record: Record) -> list[Report] | None:
        dialect = self._found(record)
        reports = dialect.whole(record) if dialect is not None else None
        return reports if reports is not None else self._failed(record)

    def done(self) -> list[Report]:
        return self._dialect.done() if self._dialect is not None and self._error is None else []

    def left(self) -> list[Report]:
        return self._dialect.left() if self._dialect is not None and self._error is None else []

    def _found(self, record: Record) -> Dialect | None:
        if self._dialect is None:
            kind, is_one = str(record.get("type")), record.get("object")
            if kind.startswith("response.") or is_one == "response":
                self._dialect = Responses()
            elif "choices" in record:
                self._dialect = ChatCompletions()
        return self._dialect

    def _failed(self, record: Record) -> list[Report] | None:
        error = failure(record)
        if error is None or self.over:
            return None
        had = self.left()
        self._error = error
        return [*had, error_note(error)]
