"""Reruns: the worker as it is now, with what the request asked for."""

from __future__ import annotations

import pytest
from tests.engine.harness import EngineHarness

from shopfloor.ports import RunRequest

pytestmark = pytest.mark.anyio

SAYS_HI = 'steps: {Say: {block: command, command: "echo hi"}}'


@pytest.mark.storages("memory", "files")
async def test_a_rerun_has_the_labels_of_the_request_and_those_that_the_worker_now_requires(
    harness: EngineHarness,
) -> None:
    harness.add_worker("says-hi", f"requires: {{labels: {{gpu: old, zone: a}}}}\n{SAYS_HI}")
    async with harness.open() as engine:
        first = await engine.service.dispatch(RunRequest(worker="says-hi", labels={"zone": "b", "disk": "big"}))
        plain = await engine.dispatch("says-hi")
        for run_id in (first, plain):
            await engine.cancel(run_id)
            await engine.wait_for_outcome(run_id)
        harness.add_worker("says-hi", f"requires: {{labels: {{gpu: new}}}}\n{SAYS_HI}")
        again = await engine.service.rerun(first)
        item = await engine.wait_for_status(again, "queued")
        assert item.row.requires is not None
        assert item.row.requires.labels == {"gpu": "new", "zone": "b", "disk": "big"}
        harness.add_worker("says-hi", SAYS_HI)
        assert (await engine.wait_for_outcome(await engine.service.rerun(plain))).status == "completed"
