"""What a tool call knows of its client: the API with its rights, who it is, how it can be asked and shown progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from shopfloor.client import Api
from shopfloor.log import ClientInfo

AskMode = Literal["none", "request", "retry"]
"""How a client lets a server ask its user: not at all, by a request during the call (protocol versions up to
2025-11-25), or by an answer that makes the client repeat the call (2026-07-28)."""


class InputRequired(Exception):
    """A question for the user of a client that repeats the call with the answer."""

    def __init__(self, call: Mapping[str, Any], run_id: str) -> None:
        super().__init__(call["call_id"])
        self.call = call
        self.run_id = run_id
        """The run that the call is about. The client returns it, so that `worker_run` does not start a second run."""


class Session(Protocol):
    """One tool call of a client."""

    @property
    def api(self) -> Api:
        """The HTTP API, called with the rights of the client."""
        ...

    @property
    def page_url(self) -> str:
        """The address of the server's page."""
        ...

    @property
    def client(self) -> ClientInfo | None:
        """The program that calls the tools, as far as it is known."""
        ...

    @property
    def folder(self) -> str | None:
        """The client's working folder, if it is on the server's machine."""
        ...

    @property
    def ask_mode(self) -> AskMode: ...

    @property
    def repeated_run_id(self) -> str | None:
        """The run of an `InputRequired`, if the client repeats the call."""
        ...

    def repeated_answer(self, call_id: str) -> tuple[bool, Any]:
        """Return whether the client repeats the call after this question, and the answer; None if it was declined."""
        ...

    async def ask(self, message: str, options: list[str]) -> Any:
        """Ask the user by a request (`ask_mode` is `request`); return the answer, or None if it was declined."""
        ...

    async def report_progress(self, seconds: float, message: str) -> None:
        """Report how long a call has waited. Does nothing if the client did not ask for progress."""
        ...


def run_link(session: Session, run_id: str) -> str:
    """Return the address of a run's page."""
    return f"{session.page_url}/agents/all/workers?worker={run_id}"
