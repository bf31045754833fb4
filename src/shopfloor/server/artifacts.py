"""Artifacts: the files that runs submitted with their results."""

from __future__ import annotations

from shopfloor.ports import Blobs, RunItem, artifacts_folder
from shopfloor.server.response_models import ArtifactItem

_PLUGIN = "plugin"


async def find_artifacts(blobs: Blobs | None, run: RunItem) -> list[ArtifactItem]:
    """Return the artifacts of a run, by name. Those of a plugin's job are known by name only."""
    if not run.row.notes.artifacts or blobs is None:
        return []
    found = {info.name: info.size_bytes for info in await blobs.list(artifacts_folder(run.row.id))}
    remote = run.row.notes.artifacts if run.row.worker_type == _PLUGIN else ()
    return [ArtifactItem(name, found.get(name)) for name in sorted({*found, *remote})]
