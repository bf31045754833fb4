"""`shopfloor plugins`, as an author of plugins uses it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import Popen

import pytest
from tests.agents.agent_environment import agent_environment
from tests.cli.conftest import Cli
from tests.cli.test_server import Server
from tests.model_server.fixtures import model_server, model_server_thread
from tests.model_server.script import Text, Turn
from tests.model_server.server import ModelServer
from tests.timeouts import wait_until
from tools.page import find_node

__all__ = ["model_server", "model_server_thread"]


StartServer = Callable[[Path], Server]


@pytest.fixture
def server(start: Callable[..., Popen[bytes]], env: dict[str, str]) -> Iterator[StartServer]:
    """Start a server in a folder."""
    servers: list[Server] = []

    def up(folder: Path) -> Server:
        servers.append(Server(start("up", "--port", "0", cwd=folder), env))
        return servers[-1]

    yield up
    for one in servers:
        one.http.close()


@pytest.fixture
def project(tmp_path: Path, env: dict[str, str]) -> Path:
    """An empty project, and a home without plugins."""
    env["HOME"] = env["XDG_DATA_HOME"] = str(tmp_path / "home")
    folder = tmp_path / "project"
    folder.mkdir(mode=0o755)
    return folder


@pytest.mark.req("REQ-WD-1", "REQ-WD-2", "REQ-WD-3", "REQ-WD-4")
@pytest.mark.parametrize("template", ["word-count", "node-example"])
def test_a_new_plugin_passes_every_check(shopfloor: Cli, project: Path, env: dict[str, str], template: str) -> None:
    env["PATH"] = f"{find_node().parent}:{env['PATH']}"
    created = shopfloor("plugins", "new", "my-plugin", "--template", template, cwd=project)
    assert created.returncode == 0, created.stderr
    assert created.stdout.startswith(f"created {project / 'plugins' / 'my-plugin'}\n")
    assert "\n  shopfloor plugins check my-plugin " in created.stdout
    assert created.stdout.endswith("\n  shopfloor run my-plugin 'your task'\n")
    (listed,) = json.loads(shopfloor("plugins", "list", "--json", cwd=project).stdout)
    assert (listed["name"], listed["status"], listed["capabilities"]) == ("my-plugin", "stopped", ["worker"])
    checked = shopfloor("plugins", "check", "my-plugin", cwd=project)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.endswith("all 14 checks passed\n")
    assert "✗" not in checked.stdout


@pytest.mark.req("REQ-WD-40", "REQ-WD-43")
def test_a_copy_of_the_researcher_passes_every_check(
    shopfloor: Cli, project: Path, env: dict[str, str], model_server: ModelServer
) -> None:
    env.update(agent_environment("claude-code", model_server.url, project / "home"))
    model_server.say(Turn(say=[Text(text="OK")], times=0))
    assert shopfloor("plugins", "new", "reviewer", cwd=project).returncode == 0
    assert not (project / "plugins" / "reviewer" / "jobs").exists()
    checked = shopfloor("plugins", "check", "reviewer", "--json", cwd=project)
    results = [json.loads(line) for line in checked.stdout.splitlines()]
    assert [result for result in results if not result["passed"]] == []
    assert len(results) == 14
    assert (project / "plugins" / "reviewer" / "jobs").is_dir()


def test_a_plugin_of_a_project_is_started_only_once_it_is_allowed(
    shopfloor: Cli, project: Path, tmp_path: Path
) -> None:
    shopfloor("plugins", "new", "counter", "--template", "word-count", "--into", "made", cwd=tmp_path)
    (tmp_path / "made").rename(project / "plugins")
    (listed,) = json.loads(shopfloor("plugins", "list", "--json", cwd=project).stdout)
    assert (listed["name"], listed["status"]) == ("counter", "not_allowed")
    refused = shopfloor("plugins", "check", "counter", cwd=project)
    assert refused.returncode == 2
    assert "error[usage]: plugin counter is not allowed yet" in refused.stderr
    assert f"shopfloor plugins allow {project / 'plugins' / 'counter'}" in refused.stderr
    # Naming the folder of plugins allows them.
    assert shopfloor("plugins", "check", "counter", "--plugins", "plugins", cwd=project).returncode == 0
    assert shopfloor("plugins", "allow", "plugins/counter", cwd=project).returncode == 0
    assert shopfloor("plugins", "check", "counter", cwd=project).returncode == 0


def test_bad_plugins_are_listed_with_the_reason_and_stop_no_other(shopfloor: Cli, project: Path) -> None:
    shopfloor("plugins", "new", "good", "--template", "word-count", cwd=project)
    (project / "plugins" / "torn").mkdir()
    (project / "plugins" / "torn" / "guild-member.json").write_text("{")
    listed = shopfloor("plugins", cwd=project)
    assert listed.returncode == 0
    good, torn, reason = listed.stdout.splitlines()
    assert good.startswith("good  stopped      worker  Counts the words of a text.")
    assert (torn, reason) == ("torn  error", "    guild-member.json: Input data was truncated")
    assert listed.stderr == "no server is running: a plugin is started when a run needs it\n"
    checked = shopfloor("plugins", "check", "plugins/torn", cwd=project)
    assert checked.returncode == 1
    assert checked.stdout.startswith("✗ the manifest is valid\n  guild-member.json: Input data was truncated")


def test_the_list_has_the_state_that_the_server_knows(shopfloor: Cli, project: Path, server: StartServer) -> None:
    shopfloor("plugins", "new", "counter", "--template", "word-count", cwd=project)
    shopfloor("plugins", "new", "crash", "--template", "word-count", cwd=project)
    (project / "plugins" / "crash" / "server.py").write_text("import sys; sys.exit('no such module')")
    shopfloor("plugins", "new", "alien", "--template", "word-count", "--into", "made", cwd=project)
    (project / "made" / "alien").rename(project / "plugins" / "alien")
    server(project)

    def states() -> dict[str, str]:
        listed = json.loads(shopfloor("plugins", "list", "--json", cwd=project).stdout)
        return {info["name"]: info["status"] for info in listed}

    wait_until(
        lambda: states() == {"alien": "not_allowed", "counter": "ready", "crash": "error"},
        "each plugin to have its state",
    )
    listed = shopfloor("plugins", cwd=project)
    assert (listed.returncode, listed.stderr) == (0, "")
    lines = listed.stdout.splitlines()
    assert lines[0].startswith("alien    not allowed  worker  ")
    assert lines[1] == f"    run `shopfloor plugins allow {project}/plugins/alien` once to allow it"
    assert lines[2].startswith("counter  ready        worker  ")
    assert lines[3].startswith("crash    error        worker  ")
    assert "no such module" in lines[4]
    # A plugin that the server does not know, because its folder is elsewhere, is listed as well.
    elsewhere = project.parent / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    shopfloor("plugins", "new", "other", "--template", "word-count", cwd=elsewhere)
    listed = json.loads(shopfloor("plugins", "list", "--json", cwd=elsewhere).stdout)
    assert {"counter": "ready", "other": "stopped"}.items() <= {info["name"]: info["status"] for info in listed}.items()


def test_a_plugin_in_another_folder_is_checked_and_run_as_its_creation_says(shopfloor: Cli, project: Path) -> None:
    created = shopfloor("plugins", "new", "counter", "--template", "word-count", "--into", "my plugins", cwd=project)
    check, run = (line.strip() for line in created.stdout.splitlines()[-2:])
    assert check.startswith("shopfloor plugins check counter --plugins 'my plugins' ")
    assert run == "shopfloor run counter 'your task' --plugins 'my plugins'"
    done = shopfloor(*shlex.split(run)[1:], cwd=project)
    assert done.stdout == "2 words\n", done.stderr


def test_a_plugin_that_breaks_the_protocol_fails_the_check_with_what_was_wrong(shopfloor: Cli, project: Path) -> None:
    shopfloor("plugins", "new", "sloppy", "--template", "word-count", cwd=project)
    server = project / "plugins" / "sloppy" / "server.py"
    text = server.read_text()
    # It returns every job to every filter, and lets a stranger in.
    text = text.replace('pattern = params.get("filter") or "*"', 'pattern = "nothing"').replace(
        "if SECRET and", "if False and"
    )
    server.write_text(text)
    checked = shopfloor("plugins", "check", "sloppy", cwd=project)
    assert checked.returncode == 1
    assert "✗ a request without the secret is refused" in checked.stdout
    assert "require SHOPFLOOR_PLUGIN_SECRET" in checked.stdout
    assert "✗ worker/list finds the job by a glob on its description" in checked.stdout
    assert checked.stdout.endswith("2 of 14 checks failed\n")
    server.write_text("import sys; sys.exit('no such module')")
    dead = shopfloor("plugins", "check", "sloppy", cwd=project)
    assert dead.returncode == 1
    assert "✗ the plugin starts and answers initialize" in dead.stdout
    assert "ended with exit code 1: no such module" in dead.stdout


WRONG = {
    "if SECRET and self": "if False and self",
    'return error(None, -32700, "the request is not JSON")': "return error(None, -32603, 'oops')",
    "return error(request_id, -32601": "return error(request_id, -32000",
    'raise InvalidParams(f"unknown job {job_id!r}")': "return next(iter(JOBS.values()), GHOST)",
    'pattern = params.get("filter") or "*"': 'pattern = "*"',
    "for name in fields} for job in jobs]": "for name in job} for job in [GHOST, *jobs]]",
    "return {name: value for name, value in job_of(params).items()": (
        'return {name: "" if name == "description" else value for name, value in job_of(params).items()'
    ),
    "job.update(ended, completedAt=now())": "job.update(ended)",
    'return {"jobId": job["jobId"], "status": job["status"]}': 'return {"jobId": job["jobId"], "status": "cancelled"}',
    '"output": job["output"], "artifacts": None}': '"text": job["output"]}',
    'del JOBS[job["jobId"]]': "pass",
    "LOCK = threading.Lock()": (
        'LOCK = threading.Lock()\nGHOST = {"jobId": "ghost", "status": "completed", "description": "", "startedAt": "x",'
        ' "summary": None, "questions": None, "decisions": None, "error": None, "completedAt": None, "output": ""}'
    ),
}
"""Texts of the word-count plugin, and what replaces them to break each rule of the protocol."""


@pytest.mark.req("REQ-WD-3", "REQ-WD-46")
def test_each_violation_of_the_protocol_is_reported(shopfloor: Cli, project: Path) -> None:
    shopfloor("plugins", "new", "wrong", "--template", "word-count", cwd=project)
    server = project / "plugins" / "wrong" / "server.py"
    text = server.read_text()
    for right, wrong in WRONG.items():
        assert right in text
        text = text.replace(right, wrong)
    server.write_text(text)
    checked = shopfloor("plugins", "check", "wrong", "--json", cwd=project)
    results = {result["name"]: result for result in map(json.loads, checked.stdout.splitlines())}
    assert checked.returncode == 1
    assert [name for name, result in results.items() if result["passed"]] == [
        "the manifest is valid",
        "the plugin starts and answers initialize",
        "tools/list returns the tools",
        "worker/dispatch starts a job and returns its id",
    ]
    details = {name: result["detail"] for name, result in results.items() if not result["passed"]}
    assert "SHOPFLOOR_PLUGIN_SECRET" in details["a request without the secret is refused"]
    assert details["a body that is not JSON is error -32700"] == "the error code is -32603, expected -32700"
    assert "the error code is -32000, expected -32601" in details["an unknown method is error -32601"]
    assert "succeeded, expected error -32602" in details["unknown jobs and missing parameters are error -32602"]
    assert "returned ['ghost'," in details["worker/list finds the job by a glob on its description"]
    status = details["worker/status has the fields of the protocol"]
    assert status == "jobId and description are not those of the job"
    assert "has no completedAt" in details["the job ends, or can be cancelled"]
    assert (
        "the status was 'completed' and is 'cancelled' now" in details["worker/cancel of an ended job changes nothing"]
    )
    assert "missing required field `output`" in details["worker/result fits the status of the job"]
    deleted = details["worker/delete removes completed and cancelled jobs only"]
    assert "succeeded, expected error -32602" in deleted
    assert len(results) == 14


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("new", "Bad Name"), "'Bad Name' is not a plugin name"),
        (("new", "x", "--template", "nope"), "no template 'nope'"),
        (("check", "nope"), "there is no plugin 'nope'"),
        (("allow", "nowhere"), "is not a plugin: it has no guild-member.json"),
    ],
)
def test_bad_input_is_a_clear_error(shopfloor: Cli, project: Path, words: tuple[str, ...], message: str) -> None:
    done = shopfloor("plugins", *words, cwd=project)
    assert done.returncode in (2, 4)
    assert message in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_is_used_once(shopfloor: Cli, project: Path) -> None:
    assert shopfloor("plugins", "new", "counter", "--template", "word-count", cwd=project).returncode == 0
    again = shopfloor("plugins", "new", "counter", "--template", "word-count", cwd=project)
    assert "exists already" in again.stderr


def test_a_plugin_cannot_have_the_name_of_a_worker(shopfloor: Cli, project: Path) -> None:
    refused = shopfloor("plugins", "new", "hello", "--template", "word-count", cwd=project)
    assert refused.returncode == 5
    assert "error[conflict]: there is a worker 'hello' already" in refused.stderr
    assert not (project / "plugins").exists()


def test_a_plugin_whose_script_is_missing_shows_its_output(shopfloor: Cli, project: Path) -> None:
    assert shopfloor("plugins", "new", "lost", "--template", "word-count", cwd=project).returncode == 0
    (project / "plugins" / "lost" / "server.py").unlink()
    failed = shopfloor("plugins", "check", "lost", cwd=project)
    assert failed.returncode == 1
    assert "server.py" in failed.stdout


@pytest.mark.parametrize("content", [b"{", b'{"allowed": ["\xff"]}'], ids=["torn", "not-utf8"])
def test_a_damaged_list_of_allowed_plugins_allows_none_and_stops_no_worker(
    shopfloor: Cli, project: Path, env: dict[str, str], content: bytes
) -> None:
    assert shopfloor("plugins", "new", "mine", "--template", "word-count", cwd=project).returncode == 0
    (Path(env["SHOPFLOOR_STORAGE"]) / "plugins.json").write_bytes(content)
    (listed,) = json.loads(shopfloor("plugins", "list", "--json", cwd=project).stdout)
    assert listed["status"] == "not_allowed"
    ran = shopfloor("run", "hello", "-i", "NAME=Ada", cwd=project)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False)


def test_a_folder_that_cannot_be_read_is_an_entry_with_its_reason(shopfloor: Cli, project: Path) -> None:
    assert shopfloor("plugins", "new", "mine", "--template", "word-count", cwd=project).returncode == 0
    # A link to itself cannot be read by any user.
    manifest = project / "plugins" / "closed" / "guild-member.json"
    manifest.parent.mkdir()
    manifest.symlink_to(manifest)
    states = {
        each["name"]: each["status"] for each in json.loads(shopfloor("plugins", "list", "--json", cwd=project).stdout)
    }
    assert states == {"mine": "stopped", "closed": "error"}
