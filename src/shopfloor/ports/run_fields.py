"""The fields of a request for a run: their types, with their limits and the descriptions that the API gives of them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from shopfloor.limits import FILTER_MAX_CHARS, PATH_MAX_CHARS, TASK_MAX_CHARS, WORKER_NAME_MAX_CHARS

ShortText = Annotated[str, Meta(min_length=1, max_length=FILTER_MAX_CHARS)]
Worker = Annotated[str, Meta(min_length=1, max_length=WORKER_NAME_MAX_CHARS, description="The worker's slug.")]
Input = Annotated[dict[str, Any], Meta(description="What the worker is given, by name.")]
Task = Annotated[
    Annotated[str, Meta(min_length=1, max_length=TASK_MAX_CHARS)] | None,
    Meta(description="What lists show; made of the input by default."),
]
Owner = Annotated[ShortText | None, Meta(description="Under whom it is listed; the worker itself by default.")]
ChannelId = Annotated[ShortText | None, Meta(description="Where it came from; `api` by default.")]
ChannelName = Annotated[ShortText | None, Meta(description="What people call that place.")]
IdempotencyKey = Annotated[ShortText | None, Meta(description="The same key again is the same run.")]
Folder = Annotated[
    Annotated[str, Meta(pattern=r"^/[^\x00]*$", max_length=PATH_MAX_CHARS)] | None,
    Meta(description="The folder it works in, on the server's machine: an absolute path."),
]
