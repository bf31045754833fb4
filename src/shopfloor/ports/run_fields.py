"""Types of the fields of a run request, with their limits and the descriptions shown in the API reference."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from shopfloor.limits import (
    APPROVAL_PATTERNS,
    APPROVAL_TIMEOUT_MAX_SECONDS,
    FILTER_MAX_CHARS,
    MAX_PRIORITY,
    PATH_MAX_CHARS,
    RUN_LABELS,
    TASK_MAX_CHARS,
    WORKER_NAME_MAX_CHARS,
)
from shopfloor.log import ClientInfo
from shopfloor.ports.placement import LABEL_PATTERN

ShortText = Annotated[str, Meta(min_length=1, max_length=FILTER_MAX_CHARS)]
Worker = Annotated[str, Meta(min_length=1, max_length=WORKER_NAME_MAX_CHARS, description="The worker's slug.")]
Input = Annotated[dict[str, Any], Meta(description="The inputs of the worker, by name.")]
Text = Annotated[
    Annotated[str, Meta(min_length=1, max_length=TASK_MAX_CHARS)] | None,
    Meta(description="The work in words, for the one text input of the worker that `input` does not set."),
]
Task = Annotated[
    Annotated[str, Meta(min_length=1, max_length=TASK_MAX_CHARS)] | None,
    Meta(description="The text shown in lists; by default made from the input."),
]
Owner = Annotated[ShortText | None, Meta(description="The owner, under whom the run is listed; by default the worker.")]
ChannelId = Annotated[ShortText | None, Meta(description="Where the request came from; by default `api`.")]
ChannelName = Annotated[ShortText | None, Meta(description="Display name of the channel.")]
IdempotencyKey = Annotated[ShortText | None, Meta(description="A request with the same key returns the same run.")]
Folder = Annotated[
    Annotated[str, Meta(pattern=r"^/[^\x00]*$", max_length=PATH_MAX_CHARS)] | None,
    Meta(description="The working folder on the server's machine, as an absolute path."),
]
Priority = Annotated[
    int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="Runs with a higher priority start first; by default 0.")
]
_Label = Annotated[str, Meta(pattern=LABEL_PATTERN)]
Labels = Annotated[
    dict[_Label, _Label],
    Meta(max_length=RUN_LABELS, description="Labels that the host of the run must have, besides those of its worker."),
]


class RequestClient(ClientInfo, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The program that sends the request. It is recorded as it describes itself."""

    name: Annotated[ShortText, Meta(description="The name of the program, e.g. `claude-code`.")]
    version: Annotated[ShortText | None, Meta(description="Its version.")] = None
    session_id: Annotated[ShortText | None, Meta(description="Its own id of the session or conversation.")] = None


APPROVAL_PATTERN = r"^[^\s()]+(\(.+\))?$"
"""A pattern of calls to approve: the name of a tool, and in parentheses a text to compare to its input."""
Approve = Annotated[
    list[Annotated[str, Meta(pattern=APPROVAL_PATTERN, max_length=FILTER_MAX_CHARS)]],
    Meta(
        max_length=APPROVAL_PATTERNS,
        description="The calls that a person has to approve: `Bash`, `Bash(git push*)`, `command`, or a tool's name.",
    ),
]
ApproveTimeout = Annotated[
    Annotated[float, Meta(gt=0, le=APPROVAL_TIMEOUT_MAX_SECONDS)] | None,
    Meta(description="Seconds after which a call without a decision is denied; by default a day."),
]
Client = Annotated[RequestClient | None, Meta(description="The program that sends the request.")]
