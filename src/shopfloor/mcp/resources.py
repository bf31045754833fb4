"""Resources: the output and the transcript of each run, in pages."""

from __future__ import annotations

from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import mcp_types as types

from shopfloor.client import Api
from shopfloor.errors import InvalidParameter
from shopfloor.mcp.limits import MCP_PAGE_ITEMS, MCP_RESOURCE_CHARS
from shopfloor.mcp.output import one_line, page_of, parse_cursor, to_status
from shopfloor.mcp.results import fetch_output, fetch_transcript

_TEXT: Final = "text/plain"
_FORM: Final = "shopfloor://runs/{run_id}/result or shopfloor://runs/{run_id}/transcript"

TEMPLATES: Final = (
    types.ResourceTemplate(
        name="run-result",
        title="Result of a run",
        uri_template="shopfloor://runs/{run_id}/result{?cursor}",
        description="The output of a completed run.",
        mime_type=_TEXT,
    ),
    types.ResourceTemplate(
        name="run-transcript",
        title="Transcript of a run",
        uri_template="shopfloor://runs/{run_id}/transcript{?cursor}",
        description="What was said and done in a run up to now.",
        mime_type=_TEXT,
    ),
)


async def list_results(api: Api, cursor: str | None) -> types.ListResourcesResult:
    """Return a page of the results of completed runs, newest first."""
    page = await api.get("/api/agents/workers", limit=MCP_PAGE_ITEMS, status="done", cursor=cursor)
    resources = [
        types.Resource(
            uri=f"shopfloor://runs/{run['id']}/result",
            name=f"{run['name']} {run['id'][:8]}",
            title=one_line(run["task"]),
            mime_type=_TEXT,
        )
        for run in cast("list[dict[str, Any]]", page["workers"])
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=page["next"])


async def read_resource(api: Api, uri: str) -> types.ReadResourceResult:
    """Return a page of the resource. A text that continues ends with the address of its next page."""
    parts = urlsplit(uri)
    run, _, kind = parts.path.removeprefix("/").partition("/")
    if (parts.scheme, parts.netloc) != ("shopfloor", "runs") or not run or kind not in ("result", "transcript"):
        raise InvalidParameter(f"there is no resource {uri!r}", hint=f"the resources are {_FORM}")
    run_id = await api.find_run(run)
    start = parse_cursor((parse_qs(parts.query).get("cursor") or ["0"])[0])
    text = await fetch_transcript(api, run_id) if kind == "transcript" else await _fetch_result(api, run_id)
    page = page_of(text, start, MCP_RESOURCE_CHARS)
    rest = f"\n\n[continues in shopfloor://runs/{run_id}/{kind}?cursor={page.next}]" if page.next else ""
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, mime_type=_TEXT, text=page.text + rest)]
    )


async def _fetch_result(api: Api, run_id: str) -> str:
    detail = await api.get("/api/agents/workers/detail", worker_id=run_id, transcript=False)
    if detail["status"] != "done":
        raise InvalidParameter(
            f"the run {run_id} has no result: it is {to_status(detail['status'])}",
            hint=f"shopfloor://runs/{run_id}/transcript has what it did",
        )
    return await fetch_output(api, detail)
