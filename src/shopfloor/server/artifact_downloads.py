"""Operations on the artifacts of a run: list and download them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from shopfloor.errors import ArtifactNotFound
from shopfloor.ports import artifacts_folder
from shopfloor.server.artifacts import find_artifacts
from shopfloor.server.audit import audit
from shopfloor.server.openapi import Operations
from shopfloor.server.parameters import ArtifactParams, RunParams
from shopfloor.server.response_models import ArtifactList
from shopfloor.server.responses import describe_bytes, describe_json, get_services, json_response
from shopfloor.server.runs import get_owned_run

_MEDIA_TYPE = "text/plain; charset=utf-8"
"""Of every artifact, whatever its name says: a browser must not execute what a model wrote."""

operations = Operations()


@operations("GET", "/api/runs/{run_id}/artifacts", describe_json(ArtifactList, "The artifacts, by name."), RunParams)
async def list_artifacts(request: Request, params: RunParams) -> Response:
    """List the files that a run submitted with its result."""
    services = get_services(request)
    run = await get_owned_run(services.store, params.run_id)
    return json_response(ArtifactList(await find_artifacts(services.blobs, run)))


@operations(
    "GET",
    "/api/runs/{run_id}/artifacts/{name:path}",
    describe_bytes("The content, as UTF-8.", "text/plain"),
    ArtifactParams,
)
async def download_artifact(request: Request, params: ArtifactParams) -> Response:
    """Download a file that a run submitted with its result."""
    services = get_services(request)
    run = await get_owned_run(services.store, params.run_id)
    artifacts = {item.name: item for item in await find_artifacts(services.blobs, run)}
    found = artifacts.get(params.name)
    if found is None:
        names = f"its artifacts are {', '.join(artifacts)}" if artifacts else "it has no artifacts"
        raise ArtifactNotFound(f"run {params.run_id} has no artifact {params.name!r}", hint=names)
    content = None
    if services.blobs is not None and found.size_bytes is not None:
        content = await services.blobs.get(f"{artifacts_folder(params.run_id)}/{params.name}")
    if content is None:
        raise ArtifactNotFound(
            f"the plugin {run.row.name} has the file {params.name!r}", hint="read it in the folder of the plugin"
        )
    await audit(request, "run.exported", run_id=params.run_id, detail=params.name)
    headers = {"Content-Disposition": f'attachment; filename="{params.name}"'}
    return Response(content, headers=headers, media_type=_MEDIA_TYPE)
