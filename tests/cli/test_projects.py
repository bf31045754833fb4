"""One server serves the workers of several folders."""

import json
import time
from pathlib import Path

import httpx
import pytest
from tests.timeouts import TIMEOUT_SECONDS

WORKER = """\
description: {0}
steps:
  Where:
    block: command
    command: [sh, -c, 'echo {0} in $PWD']
    output: TEXT
output: TEXT
"""


def project(root: Path, name: str, *slugs: str) -> Path:
    for slug in slugs:
        folder = root / name / "workers" / slug
        folder.mkdir(parents=True)
        (folder / "worker.yaml").write_text(WORKER.format(name))
    return root / name


@pytest.fixture
def two_projects(tmp_path: Path) -> tuple[Path, Path]:
    return project(tmp_path, "alpha", "report", "only-alpha"), project(tmp_path, "beta", "report")


@pytest.mark.req("SF-29")
def test_a_server_serves_the_workers_of_two_projects_each_in_its_folder(shopfloor, start, env, two_projects):
    alpha, beta = two_projects
    server = start("up", "--port", "0", cwd=alpha)
    server.stdout.readline()
    address = json.loads(Path(env["SHOPFLOOR_STORAGE"], "server.json").read_text())
    added = shopfloor("projects", "add", str(beta))
    assert (added.returncode, added.stdout) == (0, f"beta: {beta}\n")
    listed = json.loads(shopfloor("projects", "list", "--json").stdout)
    assert listed == [{"name": "alpha", "folder": str(alpha)}, {"name": "beta", "folder": str(beta)}]

    headers = {"Authorization": f"Bearer {address['token']}"}
    with httpx.Client(base_url=address["url"], headers=headers, timeout=60) as client:
        workers = {one["slug"]: one["project"] for one in client.get("/api/workers").json()["workers"]}
        # The server was started in alpha, so alpha's workers come first, under their slugs alone.
        assert {"report", "only-alpha", "beta/report"} <= set(workers)
        assert workers["beta/report"] == "beta"
        for worker, folder in (("report", alpha), ("alpha/report", alpha), ("beta/report", beta)):
            run_id = client.post("/api/runs", json={"worker": worker}).json()["run_id"]
            detail = _ended(client, run_id)
            assert detail["status"] == "done", detail
            assert f"in {folder}" in detail["result"]
        stream = client.post("/api/agents/beta%2Freport/execute", json={"type": "start"})
        assert f"in {beta}" in stream.text
        assert client.post("/api/agents/beta/report/execute", json={"type": "start"}).status_code == 200
        assert shopfloor("projects", "remove", "beta").returncode == 0
        refused = client.post("/api/runs", json={"worker": "beta/report"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found_error")


def _ended(client: httpx.Client, run_id: str) -> dict:
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        asked = {"worker_id": run_id, "transcript": "false"}
        detail = client.get("/api/agents/workers/detail", params=asked).json()
        if detail["completed_at"] is not None or time.monotonic() > deadline:
            return detail
        time.sleep(0.05)


@pytest.mark.req("SF-29")
def test_a_slug_that_two_projects_have_is_named_with_the_project(shopfloor, tmp_path, two_projects):
    for folder in two_projects:
        assert shopfloor("projects", "add", str(folder)).returncode == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    refused = shopfloor("run", "report", cwd=elsewhere)
    assert refused.returncode == 5
    assert "several projects have a worker `report`" in refused.stderr
    assert "alpha/report, beta/report" in refused.stderr
    assert "beta in" in shopfloor("run", "beta/report", cwd=elsewhere).stdout
    assert "alpha in" in shopfloor("run", "only-alpha", cwd=elsewhere).stdout
    shown = shopfloor("workers", "list", cwd=elsewhere).stdout
    assert "alpha/report" in shown
    assert "beta/report" in shown


def test_a_project_is_added_once_and_named_after_its_folder(shopfloor, tmp_path, two_projects):
    alpha, _ = two_projects
    assert shopfloor("projects", "add", cwd=alpha).stdout == f"alpha: {alpha}\n"
    assert shopfloor("projects", "add", str(alpha)).stdout == f"alpha: {alpha}\n"
    other = project(tmp_path / "more", "Alpha", "x")
    assert shopfloor("projects", "add", str(other)).stdout == f"alpha-2: {other}\n"
    taken = shopfloor("projects", "add", str(other), "--name", "alpha")
    assert taken.returncode == 5
    assert "another project is named 'alpha'" in taken.stderr
    assert shopfloor("projects", "add", str(other), "--name", "other").stdout == f"other: {other}\n"
    assert shopfloor("projects").stdout == f"alpha  {alpha}\nother  {other}\n"


def test_a_folder_that_is_no_project_is_a_clear_error(shopfloor, tmp_path):
    missing = shopfloor("projects", "add", str(tmp_path / "none"))
    assert (missing.returncode, "does not exist" in missing.stderr) == (4, True)
    named = shopfloor("projects", "add", str(tmp_path), "--name", "No Name")
    assert (named.returncode, "is not a project name" in named.stderr) == (2, True)
    unknown = shopfloor("projects", "remove", "none")
    assert unknown.returncode == 4
    assert "the projects are: none" in unknown.stderr
