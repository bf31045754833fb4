"""`shopfloor up` and its clients: the installed command as a server, and runs of other processes beside it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import httpx
import pytest
from tests.cli.terminal import Terminal
from tests.cli.test_run import events_of
from tests.login import token_of, url_of
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.log import Verifier
from shopfloor.record import Storage


class Server:
    def __init__(self, process, env: dict[str, str]) -> None:
        self.process = process
        self.line = process.stdout.readline().decode()
        assert self.line.startswith("Shopfloor is up: "), self.line + process.stderr.read().decode()
        self.link = self.line.split()[-1]
        self.url = url_of(self.line)
        token = token_of(Storage(Path(env["SHOPFLOOR_STORAGE"])))
        self.login = f"{self.url}/login?token={token}"
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT_SECONDS
        )

    def get(self, path: str, **params) -> dict:
        answer = self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def runs(self, **params) -> list[dict]:
        return self.get("/api/agents/workers", **params)["workers"]


@pytest.fixture
def server(start, env):
    servers: list[Server] = []

    def up(*words: str, **limits: float) -> Server:
        servers.append(Server(start("up", "--port", "0", *words, limits=limits), env))
        return servers[-1]

    yield up
    for one in servers:
        one.http.close()


@pytest.mark.req("WT-6")
def test_a_run_from_another_terminal_is_listed_while_it_runs_and_after_it(server, start):
    up = server()
    assert up.runs() == []
    run = start("run", "--command", "echo first; sleep 60")
    assert run.stdout.readline() == b"first\n"
    wait_until(lambda: [one["status"] for one in up.runs()] == ["running"], "the row of a running run")
    (row,) = up.runs(status="running")
    detail = up.get("/api/agents/workers/detail", worker_id=row["id"])
    assert (detail["transcript"], detail["status"]) == (None, "running")
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=TIMEOUT_SECONDS)
    wait_until(lambda: [one["status"] for one in up.runs()] == ["cancelled"], "the row of an ended run")
    detail = up.get("/api/agents/workers/detail", worker_id=row["id"])
    assert detail["transcript"][0] == {"role": "user", "content": [{"type": "text", "text": "echo first; sleep 60"}]}
    statuses = [
        event["data"].get("status") for event in up.get("/api/agents/workers/events", worker_id=row["id"])["events"]
    ]
    assert statuses[0] == "starting"
    assert statuses[-1] == "cancelled"


def test_two_runs_and_a_server_on_one_storage(server, start, shopfloor, transcripts):
    up = server()
    runs = [
        start("run", "-q", "--command", f"for i in 1 2 3 4 5; do echo {name} $i; sleep 0.05; done") for name in "ab"
    ]
    for run in runs:
        run.communicate(timeout=TIMEOUT_SECONDS)
    wait_until(lambda: len(up.runs(status="done")) == 2, "both rows")
    for path in transcripts():
        verifier = Verifier(path.stem)
        assert [
            problem for line in path.read_bytes().splitlines(keepends=True) for problem in verifier.line(line)
        ] == []
    assert shopfloor("list", "--json").stdout.count('"status": "done"') == 2
    # The API's word for `completed` is `done`; the option takes both.
    assert shopfloor("list", "--status", "completed").stdout == shopfloor("list", "--status", "done").stdout
    assert shopfloor("list", "--status", "completed").stdout.count("  completed  ") == 2


def test_lists_are_the_same_with_a_server_and_without_one(server, shopfloor):
    shopfloor("run", "--command", "echo needle in a haystack", "--owner", "ada")
    shopfloor("run", "--command", "exit 4")
    without = json.loads(shopfloor("list", "--json").stdout)
    assert [run["status"] for run in without["workers"]] == ["failed", "done"]
    up = server()
    wait_until(lambda: len(up.runs()) == 2, "the rows")
    assert json.loads(shopfloor("list", "--json").stdout) == without
    assert [
        run["agent_id"] for run in json.loads(shopfloor("list", "--json", "--search", "needle").stdout)["workers"]
    ] == ["ada"]
    assert "[needle]" in shopfloor("list", "--search", "need").stdout
    assert shopfloor("list", "--status", "failed").stdout.splitlines()[-1] == "1 of 1 runs"
    assert "exit code 4" in shopfloor("status", "last").stdout


def test_the_server_ends_a_run_whose_host_was_killed_with_an_error(server, start, transcripts):
    up = server()
    run = start("run", "--command", "echo first; sleep 60")
    assert run.stdout.readline() == b"first\n"
    wait_until(lambda: len(up.runs(status="running")) == 1, "the row")
    run.kill()
    run.communicate()
    wait_until(lambda: len(up.runs(status="failed")) == 1, "the orphan's outcome")
    (row,) = up.runs()
    assert row["error"] == {
        "code": "host_lost",
        "message": "the process that executed the run ended unexpectedly during command",
    }
    events = events_of(transcripts()[0])
    assert [event["type"] for event in events][-2:] == ["step.completed", "run.completed"]
    assert [event["type"] for event in events].count("run.completed") == 1


def test_without_a_server_a_list_ends_orphans_too(start, shopfloor):
    run = start("run", "--command", "echo first; sleep 60")
    assert run.stdout.readline() == b"first\n"
    assert "running" in shopfloor("list").stdout
    run.kill()
    run.communicate()
    assert "failed" in shopfloor("list").stdout
    assert "host_lost" in shopfloor("status", "last").stdout


def test_a_server_killed_while_runs_write_has_every_row_right_after_its_restart(server, start, shopfloor):
    up = server()
    runs = [
        start("run", "-q", "--command", f"for i in $(seq 1 40); do echo run {n} $i; sleep 0.1; done") for n in range(50)
    ]
    for _ in range(3):
        wait_until(lambda up=up: len(up.runs()) > 0, "rows")
        time.sleep(0.2)
        up.process.kill()
        up.process.communicate()
        up = server()
    for run in runs:
        run.communicate(timeout=60)
    wait_until(lambda: up.get("/api/agents/workers", status="done")["total"] == 50, "all rows")
    kept = views_of(up)
    up.process.send_signal(signal.SIGTERM)
    up.process.communicate(timeout=TIMEOUT_SECONDS)
    assert up.process.returncode == 0
    assert shopfloor("rebuild").stdout.startswith("50 runs from ")
    assert views_of(server()) == kept


def views_of(up: Server) -> dict[str, tuple[dict, list]]:
    """Row, transcript and timeline of every run, surrogate numbers aside."""
    found = {}
    for row in up.runs(limit=500):
        timeline = up.get("/api/agents/workers/events", worker_id=row["id"], limit=1000)["events"]
        detail = up.get("/api/agents/workers/detail", worker_id=row["id"])
        found[row["id"]] = ({**row, **detail}, [{**event, "id": 0} for event in timeline])
    return found


def test_the_stream_of_a_running_run_is_its_log(server, start, transcripts):
    up = server()
    run = start("run", "-q", "--command", "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.05; done")
    wait_until(lambda: len(up.runs()) == 1, "the row")
    run_id = up.runs()[0]["id"]
    with up.http.stream("GET", f"/api/runs/{run_id}/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    run.communicate(timeout=TIMEOUT_SECONDS)
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith('data: {"seq"')]
    assert "\n".join(data) + "\n" == transcripts()[0].read_text()
    assert "event: end" in text


def test_the_login_link_gives_a_cookie_that_opens_the_api(server):
    up = server()
    with httpx.Client(base_url=up.url, timeout=TIMEOUT_SECONDS) as browser:
        assert browser.get("/api/agents/workers").status_code == 401
        answer = browser.get(up.link)
        assert answer.status_code == 303
        assert "HttpOnly" in answer.headers["set-cookie"]
        assert browser.get("/api/agents/workers").status_code == 200
        # Of the owner's token nothing is in the link or in the cookie.
        token = up.login.split("token=")[1]
        assert token not in up.link
        assert token not in answer.headers["set-cookie"]
    with httpx.Client(base_url=up.url, timeout=TIMEOUT_SECONDS) as other:
        assert other.get(up.link).status_code == 401


def test_one_storage_has_one_server(server, shopfloor):
    up = server()
    done = shopfloor("up", "--port", "0")
    assert done.stderr.startswith("error[server_running]: a server is already running")
    assert f"hint: it is at {up.url}; `shopfloor login` prints a link to log in, or" in done.stderr
    assert done.returncode == 5
    # The existing run is found as before.
    assert f"a server is running at {up.url}" in shopfloor("doctor").stdout


def test_a_port_that_is_taken_is_a_clear_error(server, shopfloor, tmp_path):
    up = server()
    port = up.url.rsplit(":", 1)[1]
    done = shopfloor("up", "--port", port, "--storage", str(tmp_path / "other"))
    assert done.stderr.startswith("error[conflict]: cannot listen on")
    assert "--port" in done.stderr


def test_a_server_that_does_not_answer_is_a_clear_error(shopfloor, env):
    env["SHOPFLOOR_URL"] = "http://127.0.0.1:9"
    done = shopfloor("list")
    assert done.stderr.startswith("error[server_unreachable]: no response from http://127.0.0.1:9")
    assert done.returncode == 7


def test_examples_are_recorded_once(server, env):
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "0"
    up = server("--examples")

    def stand() -> list[str]:
        return sorted(run["status"] for run in up.runs() if run["parent_run_id"] is None)

    wait_until(lambda: stand() == ["done", "done", "done", "failed", "waiting"], "the examples")
    count = len(up.runs())
    up.process.send_signal(signal.SIGINT)
    up.process.communicate(timeout=TIMEOUT_SECONDS)
    again = server("--examples")
    wait_until(lambda: len(again.runs()) == count, "the same examples")


def test_rebuild_restores_the_same_rows_even_without_a_database(server, shopfloor, env):
    for command in ("echo one", "exit 3", "kill -9 $$", "printf '\\377'"):
        shopfloor("run", "--command", command, text=False)
    up = server()
    wait_until(lambda: len(up.runs()) == 4, "the rows")
    kept = views_of(up)
    up.process.send_signal(signal.SIGTERM)
    up.process.communicate(timeout=TIMEOUT_SECONDS)
    for path in Path(env["SHOPFLOOR_STORAGE"]).glob("shopfloor.db*"):
        path.unlink()
    assert shopfloor("rebuild").stdout.startswith("4 runs from ")
    assert views_of(server()) == kept


def test_rebuild_beside_a_server_is_refused(server, shopfloor, env):
    server()
    assert shopfloor("rebuild").stderr.startswith("error[server_running]: a server is using the database")
    # Also if its address is not known.
    Path(env["SHOPFLOOR_STORAGE"], "server.json").unlink()
    assert shopfloor("rebuild").stderr.startswith("error[server_running]: a server is using the database")


def test_runs_are_filtered_by_worker_start_time_and_parent(shopfloor):
    assert shopfloor("run", "repo-report", "-q").returncode == 0
    assert shopfloor("run", "hello", "-i", "NAME=Ada", "-q").returncode == 0

    def listed(*options: str) -> list[str]:
        return [run["name"] for run in json.loads(shopfloor("list", "--json", *options).stdout)["workers"]]

    assert listed("--worker", "hello") == ["hello"]
    assert set(listed("--worker", "file-report")) == {"file-report"}
    assert listed("--worker", "hello", "--since", "2h") == ["hello"]
    assert listed("--until", "2h") == []
    (report,) = json.loads(shopfloor("list", "--json", "--worker", "repo-report").stdout)["workers"]
    assert set(listed("--parent", report["id"][:8])) == {"file-report"}
    assert "  file-report  " in shopfloor("list", "--all").stdout
    assert "  file-report  " not in shopfloor("list").stdout
    refused = shopfloor("list", "--since", "yesterday").stderr
    assert refused.startswith("error[usage]: argument --since: must be a time such as 2h, 7d, 2026-")


@pytest.mark.req("WT-16")
def test_prune_deletes_old_runs_and_keeps_pinned_ones(server, shopfloor, transcripts):
    shopfloor("run", "--command", "echo pinned")
    shopfloor("run", "--command", "echo old")
    up = server()
    wait_until(lambda: len(up.runs(status="done")) == 2, "the rows")
    old, pinned = up.runs()
    assert up.http.post(f"/api/runs/{pinned['id']}/pin", json={"pinned": True}).status_code == 200
    up.process.send_signal(signal.SIGTERM)
    up.process.communicate(timeout=TIMEOUT_SECONDS)
    assert shopfloor("prune", "--older-than", "1h", "--yes").stdout == "0 runs deleted\n"
    dropped = shopfloor("prune", "--older-than", "0s", "--archives-only", "--yes")
    assert dropped.stdout == "1 archived transcripts deleted\n"
    kept = {run["id"]: run["has_transcript"] for run in json.loads(shopfloor("list", "--json").stdout)["workers"]}
    assert kept == {old["id"]: False, pinned["id"]: True}
    assert shopfloor("prune", "--older-than", "0s", "--yes").stdout == "1 run deleted\n"
    assert [path.stem for path in transcripts()] == [pinned["id"]]
    assert "1 of 1 runs" in shopfloor("list").stdout
    assert shopfloor("rebuild").stdout.startswith("1 run from")
    assert shopfloor("prune", "--older-than", "soon").stderr.startswith("error[usage]")


@pytest.mark.req("WT-61")
def test_prune_confirms_reports_what_would_be_deleted_and_keeps_failed_runs(shopfloor, env, transcripts):
    for command in ("echo fine", "exit 3"):
        shopfloor("run", "--command", command)
    both = [path.stem for path in transcripts()]
    refused = shopfloor("prune", "--older-than", "0s")
    assert (refused.returncode, refused.stderr.splitlines()[1]) == (
        2,
        "hint: add --yes to delete, or --dry-run to list what would be deleted",
    )
    looked_at = shopfloor("prune", "--older-than", "0s", "--dry-run").stdout.splitlines()
    assert [line.split()[1] for line in looked_at[:-1]] == ["completed"]
    assert looked_at[-1] == "1 run would be deleted"
    archives = shopfloor("prune", "--older-than", "0s", "--dry-run", "--archives-only").stdout.splitlines()
    assert archives[-1] == "2 runs would lose their archived transcripts"
    for typed, code in (("\n", 1), ("no\n", 1), ("y\n", 0)):
        assert [path.stem for path in transcripts()] == both
        terminal = Terminal("prune", "--older-than", "0s", env=env)
        terminal.wait_for("Delete 1 run permanently? [y/N]")
        terminal.type(typed)
        assert terminal.end() == code
        terminal.close()
    (failed,) = transcripts()
    assert events_of(failed)[-1]["payload"]["status"] == "failed"
    assert shopfloor("prune", "--older-than", "0s", "--yes").stdout == "0 runs deleted\n"
    assert shopfloor("prune", "--older-than", "0s", "--yes", "--force").stdout == "1 run deleted\n"
    assert transcripts() == []


def test_a_database_of_a_later_version_is_refused(shopfloor, env):
    import sqlite3

    shopfloor("run", "--command", "true")
    shopfloor("list")
    path = Path(env["SHOPFLOOR_STORAGE"], "shopfloor.db")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 9999")
    connection.close()
    done = shopfloor("list")
    assert done.stderr.startswith("error[database_too_new]: the database has version 9999")
    path.write_bytes(b"not a database at all" * 100)
    done = shopfloor("list")
    assert done.stderr.startswith("error[database_damaged]")
    assert "rebuild" in done.stderr


def test_a_database_older_than_the_first_version_is_rebuilt_from_the_logs(shopfloor, env):
    import sqlite3

    shopfloor("run", "--command", "echo kept")
    with sqlite3.connect(Path(env["SHOPFLOOR_STORAGE"], "shopfloor.db")) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
    connection.close()
    refused = shopfloor("list")
    assert refused.stderr.startswith("error[database_too_old]")
    assert "shopfloor rebuild" in refused.stderr
    rebuilt = shopfloor("rebuild")
    assert (rebuilt.returncode, rebuilt.stdout) == (0, "1 run from 6 events\n")
    assert "echo kept" in shopfloor("list").stdout


@pytest.mark.req("WT-26")
def test_a_locked_database_does_not_delay_a_run_and_the_rows_catch_up(server, start, env):
    import sqlite3

    up = server()
    path = Path(env["SHOPFLOOR_STORAGE"], "shopfloor.db")
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("BEGIN IMMEDIATE")
        run = start("run", "-q", "--command", "echo through")
        assert run.communicate(timeout=TIMEOUT_SECONDS)[0] == b"through\n"
        assert up.runs() == []
        connection.execute("COMMIT")
    connection.close()
    wait_until(lambda: len(up.runs(status="done")) == 1, "the row after all")
    # The run's own is gone; the server is a host too.
    assert len(os.listdir(Path(env["SHOPFLOOR_STORAGE"], "hosts"))) == 1


def test_a_run_is_deleted_over_http_only_when_it_has_ended_and_a_failed_one_by_force(
    server, shopfloor, start, transcripts
):
    shopfloor("run", "--command", "exit 3")
    up = server()
    running = start("run", "--command", "echo first; sleep 60")
    assert running.stdout.readline() == b"first\n"
    wait_until(lambda: len(up.runs()) == 2, "the rows")
    (failed,), (live,) = up.runs(status="failed"), up.runs(status="running")
    refused = up.http.delete(f"/api/runs/{live['id']}", params={"force": "true"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "run_running")
    refused = up.http.delete(f"/api/runs/{failed['id']}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "needs_force")
    gone = up.http.delete(f"/api/runs/{failed['id']}", params={"force": "true"})
    assert gone.json() == {"deleted": [failed["id"]]}
    assert [path.stem for path in transcripts()] == [live["id"]]
    assert up.http.delete(f"/api/runs/{failed['id']}").status_code == 404


def test_a_hundred_clients_that_do_not_read_do_not_slow_the_writer(server, start, transcripts):
    import socket

    up = server()
    script = (
        "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i of a run with a hundred clients that do not read; done"
    )
    first = start("run", "-q", "--command", "echo first; sleep 1; " + script, stdout=-3)
    wait_until(lambda: len(up.runs()) == 1, "the row")
    run_id = up.runs()[0]["id"]
    host, port = up.url.removeprefix("http://").split(":")
    clients = []
    for _ in range(100):
        client = socket.create_connection((host, int(port)))
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        token = up.http.headers["Authorization"]
        request = f"GET /api/runs/{run_id}/stream HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: {token}\r\n\r\n"
        client.sendall(request.encode())
        clients.append(client)
    assert first.wait(timeout=60) == 0
    wait_until(lambda: len(up.runs(status="done")) == 1, "the outcome")
    assert up.get(f"/api/runs/{run_id}/log", limit=1)["events"][0]["seq"] == 1
    lines = "".join(
        block["text"]
        for event in events_of(transcripts()[0])
        if event["type"] == "message.assistant"
        for block in event["payload"]["blocks"]
    )
    assert lines.count("\n") == 2001
    for client in clients:
        client.close()


@pytest.mark.parametrize("cursor", ["x", "WyIyMDI2IiwgOTk5OTk5OTk5OTk5OTk5OTk5OTk5OTldIA=="])
def test_an_invalid_cursor_is_a_clear_error(shopfloor, cursor):
    assert shopfloor("list", "--cursor", cursor).stderr.startswith("error[invalid_parameter]")


def test_the_page_before_an_event_past_the_end_is_the_last_one(server, shopfloor):
    shopfloor("run", "--command", "echo hello")
    up = server()
    wait_until(lambda: len(up.runs(status="done")) == 1, "the row")
    page = up.get(f"/api/runs/{up.runs()[0]['id']}/log", before=1000, limit=3)
    assert ([event["seq"] for event in page["events"]], page["more"]) == ([4, 5, 6], True)


def test_read_commands_query_the_remote_server_instead_of_local_files(
    server, shopfloor, start, env, tmp_path, transcripts
):
    shopfloor("run", "--command", "echo hello from afar; exit 3")
    up = server()
    wait_until(lambda: len(up.runs(status="failed")) == 1, "the row")
    elsewhere = {
        **env,
        "SHOPFLOOR_URL": up.url,
        "SHOPFLOOR_TOKEN": up.login.split("token=")[1],
        "SHOPFLOOR_STORAGE": str(tmp_path / "nothing here"),
    }
    (path,) = transcripts()
    for name in ("last", path.stem[:6], path.stem):
        assert shopfloor("show", name, "--json", env=elsewhere, text=False).stdout == path.read_bytes()
    assert "│ hello from afar" in shopfloor("show", "last", env=elsewhere).stdout
    assert "exit code 3" in shopfloor("status", "last", env=elsewhere).stdout
    assert "1 of 1 runs" in shopfloor("list", env=elsewhere).stdout
    assert shopfloor("show", "abcdef", env=elsewhere).stderr.startswith("error[run_not_found]")
    run = start("run", "-q", "--command", "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done")
    assert run.stdout.readline() == b"1\n"
    wait_until(lambda: len(up.runs()) == 2, "the second row")
    followed = shopfloor("tail", "last", "--json", env=elsewhere, text=False).stdout
    run.communicate(timeout=TIMEOUT_SECONDS)
    assert followed == next(one for one in transcripts() if one != path).read_bytes()
    # The run has no agent. An error with the complete id shows that the run was found.
    assert (
        path.stem in shopfloor("run", "--provider", "codex", "Go on.", "--resume", path.stem[:6], env=elsewhere).stderr
    )
    wrong = {**elsewhere, "SHOPFLOOR_TOKEN": "wrong"}
    assert shopfloor("list", env=wrong).stderr.startswith("error[unauthorized]")
    assert shopfloor("show", "last", env=wrong).stderr.startswith("error[unauthorized]")
