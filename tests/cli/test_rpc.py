"""The `/rpc` of a started server, called by the client that calls plugins: a server is called as a plugin is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest
from tests.cli.conftest import Cli
from tests.cli.test_server import Server
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.plugins.client import JsonRpcClient
from shopfloor.errors import PluginFailed
from shopfloor.ports import JobState

pytestmark = pytest.mark.anyio
REPORT = """
    job["summary"] = "Counting."
    if "slowly" in job["description"]:
        threading.Event().wait()
"""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(shopfloor: Cli, start, env: dict[str, str], tmp_path: Path) -> AsyncIterator[JsonRpcClient]:
    """A client of a server whose only worker, besides the examples, is the plugin `word-count`."""
    env["HOME"] = env["XDG_DATA_HOME"] = str(tmp_path / "home")
    project = tmp_path / "project"
    project.mkdir()
    assert shopfloor("plugins", "new", "counter", "--template", "word-count", cwd=project).returncode == 0
    program = project / "plugins" / "counter" / "server.py"
    text = program.read_text()
    work = '    try:\n        ended = {"status": "completed", "output": work(task)}'
    assert work in text
    program.write_text(text.replace(work, REPORT + work))
    up = Server(start("up", "--port", "0", "--plugins", "plugins", cwd=project), env)
    token = up.http.headers["authorization"].removeprefix("Bearer ")
    async with httpx.AsyncClient() as http:
        yield JsonRpcClient(http, "shopfloor", f"{up.url}/rpc", token)
    up.http.close()


async def wait_for_end(client: JsonRpcClient, job_id: str) -> JobState:
    with anyio.fail_after(TIMEOUT_SECONDS):
        while (state := await client.worker_status(job_id)).status == "running":
            await anyio.sleep(0.05)
    return state


@pytest.mark.req("REQ-WD-3", "REQ-WD-5", "REQ-WD-8", "REQ-WD-11", "REQ-WD-14", "REQ-WD-15", "REQ-WD-17", "REQ-WD-35")
async def test_the_client_of_plugins_calls_every_method_of_a_server(client: JsonRpcClient) -> None:
    job_id = await client.dispatch_worker("Count a line", "one two three", {})
    state = await wait_for_end(client, job_id)
    assert (state.status, state.description, state.error) == ("completed", "Count a line", None)
    assert state.summary == "Counting."
    assert state.completed_at is not None
    result = await client.worker_result(job_id)
    assert (result.job_id, result.output, result.artifacts) == (job_id, "3 words", None)
    (listed,) = await client.list_workers("Count *")
    assert (listed.job_id, listed.status, listed.description) == (job_id, "completed", "Count a line")
    assert listed.summary == state.summary
    assert await client.list_workers("Nothing *") == ()
    assert await client.cancel_worker(job_id) == "completed"
    await client.delete_worker(job_id)
    with pytest.raises(PluginFailed, match="there is no job") as refused:
        await client.worker_status(job_id)
    assert refused.value.rpc_code == -32602


@pytest.mark.req("REQ-WD-16")
async def test_a_running_job_is_cancelled_in_its_plugin_too(client: JsonRpcClient) -> None:
    job_id = await client.dispatch_worker("Count slowly", "one two", {})
    with anyio.fail_after(TIMEOUT_SECONDS):
        while (await client.worker_status(job_id)).summary is None:
            await anyio.sleep(0.05)
    with pytest.raises(PluginFailed, match="it is running"):
        await client.worker_result(job_id)
    assert await client.cancel_worker(job_id) == "cancelled"
    assert (await client.worker_status(job_id)).status == "cancelled"
