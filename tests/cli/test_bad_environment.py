"""Bad environments of a command: invalid arguments, missing or read-only folders, closed outputs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from stat import S_IMODE

import httpx
import pytest
from tests.cli.test_server import server
from tests.faults.test_full_disk import on_small_disk
from tests.timeouts import TIMEOUT_SECONDS, wait_until

__all__ = ["server"]

NO_TEXT = os.fsdecode(b"\xff")


def address_of(env: dict[str, str]) -> Path:
    return Path(env["SHOPFLOOR_STORAGE"], "server.json")


# Permissions


def test_all_files_of_a_server_are_private_with_any_umask(start, env):
    up = start("up", "--port", "0", umask=0)
    assert up.stdout.readline().startswith(b"Shopfloor is up")
    kept = [path for path in Path(env["SHOPFLOOR_STORAGE"]).rglob("*") if path.is_file()]
    assert {"server.json", "shopfloor.db", "shopfloor.db-wal", "shopfloor.db-shm"} <= {path.name for path in kept}
    assert {path.name: S_IMODE(path.stat().st_mode) for path in kept} == {path.name: 0o600 for path in kept}


def test_the_token_is_never_written_to_a_file_that_others_have_open(start, env):
    address = address_of(env)
    address.parent.mkdir()
    address.write_text("what a crash left")
    with address.open() as others:
        up = start("up", "--port", "0")
        assert up.stdout.readline().startswith(b"Shopfloor is up")
        assert others.read() == "what a crash left"
    assert json.loads(address.read_bytes())["token"]
    assert list(address.parent.glob("server.json*")) == [address]


def test_a_storage_path_may_contain_url_characters(shopfloor, env, tmp_path):
    env["SHOPFLOOR_STORAGE"] = str(tmp_path / "50%41?mode=memory#1")
    shopfloor("run", "-q", "--command", "true")
    assert shopfloor("list").stdout.splitlines()[-1] == "1 of 1 runs"
    assert [path.name for path in tmp_path.iterdir()] == ["50%41?mode=memory#1"]
    assert Path(env["SHOPFLOOR_STORAGE"], "shopfloor.db").exists()


# Arguments


@pytest.mark.parametrize("port", ["99999", "65536", "-1", "http", "٣"])
def test_an_invalid_port_is_a_usage_error(shopfloor, port):
    done = shopfloor("up", f"--port={port}")
    assert done.stderr.startswith(f"error[usage]: argument --port: must be a port from 0 to 65535, got '{port}'\n")
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["host", "--slots", "99999999"], "--slots: must be at most 10,000, got '99999999'"),
        (["up", "--slots", "10001"], "--slots: must be at most 10,000, got '10001'"),
        (["host", "--heartbeat", "1e-9"], "--heartbeat: must be at least 0.1, got '1e-9'"),
        (["host", "--drain", "1e300"], "--drain: must be a number of seconds, got '1e300'"),
        (["hosts", "drain", "x", "--seconds", "1e300"], "--seconds: must be a number of seconds, got '1e300'"),
        (["events", "--follow", "--type", "agent.toolcall"], "--type: must be a type of event"),
    ],
)
def test_a_number_that_no_host_can_keep_and_an_unknown_type_of_event_are_usage_errors(shopfloor, words, problem):
    done = shopfloor(*words)
    assert done.stderr.startswith(f"error[usage]: argument {problem}"), done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("SHOPFLOOR_SLOTS", "10001", "must be at most 10,000, got '10001'"),
        ("SHOPFLOOR_HEARTBEAT", "0.01", "must be at least 0.1"),
        ("SHOPFLOOR_HEARTBEAT", "1e300", "must be a number of seconds, got '1e300'"),
    ],
)
def test_a_setting_that_no_host_can_keep_is_a_usage_error(shopfloor, env, name, value, problem):
    env[name] = value
    done = shopfloor("host")
    assert done.stderr.startswith(f"error[usage]: {name} {problem}\n"), done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize(
    "words",
    [
        ["run", NO_TEXT],
        ["run", "hello", "-i", f"NAME={NO_TEXT}"],
        ["run", "hello", "-i", "NAME=Ada", "--task", NO_TEXT],
        ["dispatch", "hello", "-i", f"NAME={NO_TEXT}"],
        ["list", "--search", NO_TEXT],
    ],
)
def test_arguments_that_are_invalid_utf8_are_a_usage_error(shopfloor, words):
    done = shopfloor(*words)
    word = next(word for word in words if NO_TEXT in word)
    assert done.stderr == f"error[usage]: argument {word!r} is not valid UTF-8\nhint: pass it as UTF-8 text\n"
    assert done.returncode == 2


def test_a_lone_surrogate_in_json_is_a_clear_error(shopfloor):
    done = shopfloor("run", "hello", "--input-json", '{"NAME": "\\ud800"}')
    assert done.stderr.startswith("error[validation_error]: '\\ud800' cannot be sent: it is not valid UTF-8 text\n")


def test_a_storage_path_may_be_invalid_utf8(shopfloor, tmp_path):
    storage = str(tmp_path / NO_TEXT)
    done = shopfloor("run", "hello", "-i", "NAME=Ada", "--storage", storage)
    assert done.returncode == 0, done.stderr
    assert shopfloor("list", "--storage", storage).stdout.splitlines()[-1] == "1 of 1 runs"
    refused = shopfloor("list", "--storage", storage, "--search", f"x{NO_TEXT}{NO_TEXT}")
    assert refused.stderr.startswith(f"error[usage]: argument {f'x{NO_TEXT}{NO_TEXT}'!r} is not valid UTF-8")


SDK = """
import asyncio
from shopfloor import Shopfloor

async def main():
    async with Shopfloor() as client:
        async def all_of(*asked):
            async for _ in client.workers.execute(*asked):
                pass
        half = chr(0xdc80)
        for asked in (
            lambda: all_of("hello", {"NAME": half}),
            lambda: all_of("hello", {"NAME": object()}),
            lambda: all_of(half),
            lambda: all_of(None),
            lambda: client.workers.generate("hello", {"NAME": half}),
            lambda: client.workers.dispatch("hello", {"NAME": object()}),
            lambda: client.api.get("/api/agents/workers", q=half),
        ):
            try:
                await asked()
            except Exception as error:
                print(type(error).__name__, ascii(error.message))

asyncio.run(main())
"""


def test_values_that_cannot_be_sent_are_errors_in_the_sdk(env):
    done = subprocess.run([sys.executable, "-c", SDK], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    half = "InvalidInput \"'\\\\udc80' cannot be sent: it is not valid UTF-8 text\""
    other = "InvalidInput 'the input cannot be sent as JSON: Encoding objects of type object is unsupported'"
    assert done.stdout.splitlines() == [
        half,
        other,
        half,
        "InvalidInput 'None is not the slug of a worker'",
        half,
        other,
        half,
    ]


# Closed outputs


@pytest.mark.parametrize("full", [False, True])
def test_a_server_with_a_full_output_pipe_continues_to_serve(start, env, full):
    if full:
        output = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, output = os.pipe()
        os.close(reader)
    up = start("up", "--port", "0", stdout=output)
    os.close(output)
    wait_until(address_of(env).exists, "the server")
    address = json.loads(address_of(env).read_bytes())
    headers = {"Authorization": f"Bearer {address['token']}"}
    answer = httpx.get(f"{address['url']}/api/workers", headers=headers, timeout=TIMEOUT_SECONDS)
    assert answer.status_code == 200
    up.send_signal(signal.SIGTERM)
    assert up.communicate(timeout=TIMEOUT_SECONDS)[1] == b""
    assert up.returncode == 0


# Folders


@pytest.mark.parametrize(
    "words", ["run hello -i NAME=Ada", "dispatch hello -i NAME=Ada", "workers list", "up --port 0", "workers new mine"]
)
def test_every_command_reports_a_deleted_working_folder(env, tmp_path, words):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"cd {gone}; rmdir {gone}; exec {Path(sys.executable).parent}/shopfloor {words}"
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, timeout=60)
    assert (
        done.stderr == "error[usage]: the current folder does not exist any more\nhint: change to an existing folder\n"
    )
    assert done.returncode == 2


def test_a_relative_storage_in_a_deleted_folder_is_a_clear_error(env, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"cd {gone}; rmdir {gone}; exec {Path(sys.executable).parent}/shopfloor list"
    settings = {**env, "SHOPFLOOR_STORAGE": "storage"}
    done = subprocess.run(["bash", "-c", line], env=settings, capture_output=True, text=True, timeout=60)
    assert done.stderr.startswith("error[usage]: the current folder does not exist any more\n")


@pytest.mark.parametrize("words", ["list", "run hello -i NAME=Ada", "up --port 0", "rebuild"])
def test_a_read_only_database_is_not_reported_as_damaged(tmp_path, words):
    script = f"shopfloor list >/dev/null; mount -o remount,ro $DISK; shopfloor {words}"
    done = on_small_disk(tmp_path, "20m", script)
    assert done.returncode == 6
    assert done.stderr.startswith("error[storage_unwritable]: cannot ")
    assert "hint: make the folder writable, or set SHOPFLOOR_STORAGE to another folder\n" in done.stderr
    assert "move it away" not in done.stderr


# Workers outside the folders of the server


def test_a_missing_worker_is_reported_with_the_folders_that_were_searched(shopfloor, tmp_path):
    here, more = tmp_path / "here", tmp_path / "more"
    (here / "workers").mkdir(parents=True)
    more.mkdir()
    done = shopfloor("run", "find-sources", "--workers", str(more), cwd=here)
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].endswith(f"; looked in {more}, {here / 'workers'}")
    nowhere = shopfloor("workers", "show", "find-sources", cwd=more)
    assert "looked in" not in nowhere.stderr


def test_workers_new_reports_a_server_that_does_not_know_the_folder(shopfloor, server, tmp_path):
    elsewhere, team = tmp_path / "else where", tmp_path / "team"
    elsewhere.mkdir()
    team.mkdir()
    up = server("--workers", str(team))
    made = shopfloor("workers", "new", "find-sources", cwd=elsewhere).stdout.splitlines()
    again = f"`shopfloor projects add '{elsewhere}'` adds it"
    assert made[-2] == f"`shopfloor run` finds it; the server at {up.url} does not know this folder: {again}"
    assert made[-1] == "try it: shopfloor run find-sources -i NAME=Ada"
    assert shopfloor("run", "find-sources", "-i", "NAME=Ada", cwd=elsewhere).returncode == 0
    assert f"; looked in {team}" in shopfloor("dispatch", "find-sources", cwd=elsewhere).stderr
    assert shopfloor("projects", "add", ".", cwd=elsewhere).returncode == 0
    assert shopfloor("dispatch", "find-sources", "-i", "NAME=Ada", cwd=elsewhere).returncode == 0

    seen = shopfloor("workers", "new", "other-sources", "--in", str(team), cwd=elsewhere).stdout
    assert "does not know" not in seen
    assert seen.splitlines()[-1] == f"try it: shopfloor run other-sources -i NAME=Ada --workers {team}"
    assert shopfloor(*seen.split("try it: shopfloor ")[1].split(), cwd=elsewhere).returncode == 0


def test_workers_new_reports_that_it_hides_a_packaged_worker(shopfloor, tmp_path):
    note = "note: in this folder, hello now means this worker; it hides the packaged worker of the same name"
    assert note in shopfloor("workers", "new", "hello", cwd=tmp_path).stdout.splitlines()
    assert "note:" not in shopfloor("workers", "new", "find-sources", cwd=tmp_path).stdout


def test_workers_new_without_a_server_mentions_no_server(shopfloor, tmp_path):
    made = shopfloor("workers", "new", "find-sources", "--in", str(tmp_path / "team"), cwd=tmp_path).stdout
    assert made.splitlines()[-1] == "try it: shopfloor run find-sources -i NAME=Ada --workers team"
    assert "server" not in made
