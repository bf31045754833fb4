"""The fields of a request for a run: their types, with their limits and the descriptions that the API gives of them."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

from shopfloor.limits import FOLDER_MOST_CHARS, SLUG_MOST_CHARS, TASK_MOST_CHARS, WORDS_MOST_CHARS

Word = Annotated[str, Meta(min_length=1, max_length=WORDS_MOST_CHARS)]
Worker = Annotated[str, Meta(min_length=1, max_length=SLUG_MOST_CHARS, description="The worker's slug.")]
Input = Annotated[dict[str, Any], Meta(description="What the worker is given, by name.")]
Task = Annotated[
    Annotated[str, Meta(min_length=1, max_length=TASK_MOST_CHARS)] | None,
    Meta(description="What lists show; made of the input by default."),
]
Owner = Annotated[Word | None, Meta(description="Under whom it is listed; the worker itself by default.")]
ChannelId = Annotated[Word | None, Meta(description="Where it came from; `api` by default.")]
ChannelName = Annotated[Word | None, Meta(description="What people call that place.")]
IdempotencyKey = Annotated[Word | None, Meta(description="The same key again is the same run.")]
Folder = Annotated[
    Annotated[str, Meta(pattern=r"^/[^\x00]*$", max_length=FOLDER_MOST_CHARS)] | None,
    Meta(description="The folder it works in, on the server's machine: an absolute path."),
]
