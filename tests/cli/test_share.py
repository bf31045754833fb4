"""Sharing, and the terminal beside the page: links, tokens for colleagues, `open`, `-q`, aliases."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import httpx
import psutil
import pytest
from tests.cli.test_server import server
from tests.timeouts import TIMEOUT_SECONDS

__all__ = ["server"]


@pytest.mark.req("SF-63")
def test_commands_print_the_link_of_a_run_and_short_ids_work_in_addresses(server, shopfloor, env, tmp_path: Path):
    without = shopfloor("run", "hello", "-i", "NAME=Ada")
    assert "http" not in without.stderr
    up = server()
    ran = shopfloor("run", "hello", "-i", "NAME=Ada")
    (link,) = re.findall(rf"{re.escape(up.url)}/runs/[0-9a-f]{{8}}$", ran.stderr, re.MULTILINE)
    short = link[-8:]
    again = shopfloor("rerun", short)
    assert re.search(rf"^shopfloor: {re.escape(up.url)}/runs/[0-9a-f]{{8}}$", again.stderr, re.MULTILINE)
    assert f"{up.url}/runs/" in shopfloor("rerun", "--detach", short).stderr
    recorded = shopfloor("run", "--command", "true").stderr
    assert f"{up.url}/runs/" in recorded
    assert link in shopfloor("status", short).stdout
    assert link in shopfloor("show", short).stdout
    sent = json.loads(shopfloor("dispatch", "--json", "hello", "-i", "NAME=Ada").stdout)
    assert sent["link"] == f"{up.url}/runs/{sent['run_id'][:8]}"
    for again in (("rerun", short), ("rerun", "--detach", short), ("rerun", "--detach", "--json", short)):
        done = shopfloor(*again)
        assert f"{up.url}/runs/" in done.stdout + done.stderr, again
    assert "http" not in shopfloor("rerun", "-q", short).stderr
    folder = tmp_path / "place" / "workers" / "careful"
    folder.mkdir(parents=True)
    (folder / "worker.yaml").write_text("approve: [command]\nsteps: {Do: {block: command, command: 'true'}}")
    waiting = shopfloor("run", "careful", cwd=tmp_path / "place").stderr
    asks = re.findall(rf"{re.escape(up.url)}/runs/([0-9a-f]{{8}})$", waiting, re.MULTILINE)[0]
    for command in (("answer", asks, "approve"), ("resume", asks)):
        done = shopfloor(*command, cwd=tmp_path / "place")
        assert f"{up.url}/runs/{asks}" in done.stderr, (command, done.stderr)

    run_id = json.loads(shopfloor("status", short, "--json").stdout)["id"]
    page = up.http.get(f"/runs/{short}")
    assert (page.status_code, page.headers["location"]) == (303, f"/agents/hello/workers?worker={run_id}")
    page = up.http.get(f"/agents/hello/workers?worker={short}&event=2")
    assert (page.status_code, page.headers["location"]) == (
        303,
        f"/agents/hello/workers?worker={run_id}&event=2",
    )
    assert up.http.get("/runs/ffff").status_code == 404
    assert up.http.get("/runs/..%2F..").status_code == 404

    opened = tmp_path / "opened"
    browser = {**env, "BROWSER": f"sh -c 'echo \"$0\" > {opened}' %s"}
    printed = shopfloor("open", short, env=browser).stdout.strip()
    assert opened.read_text().strip() == printed
    with httpx.Client(base_url=up.url, timeout=TIMEOUT_SECONDS, follow_redirects=False) as colleague:
        logged_in = colleague.get(printed)
        assert (logged_in.status_code, logged_in.headers["location"]) == (303, f"/runs/{run_id}")
        assert colleague.get(logged_in.headers["location"]).headers["location"].endswith(run_id)


@pytest.mark.req("SF-62")
def test_a_colleague_gets_a_link_that_works_from_another_machine_and_may_only_read(server, shopfloor):
    unset = shopfloor("up", "--host", "")
    assert (unset.returncode, unset.stderr.startswith("error[usage]: --host is empty")) == (2, True)
    up = server("--host", "0.0.0.0")
    ran = shopfloor("run", "-q", "hello", "-i", "NAME=Ada")
    assert ran.stdout.startswith("Hello, Ada!")
    assert "0.0.0.0" not in up.line
    others = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]
    # A machine without a network has only itself.
    assert httpx.URL(up.url).host in (others or ["127.0.0.1"])
    made = shopfloor("token", "new", "--role", "viewer")
    (link,) = re.findall(r"link for a browser: (\S+)", made.stderr)
    assert link.endswith(f"/login?token={made.stdout.strip()}")
    assert link.startswith(up.url)
    with httpx.Client(timeout=TIMEOUT_SECONDS, follow_redirects=False) as colleague:
        assert colleague.get(link).status_code == 303
        runs = colleague.get(f"{up.url}/api/agents/workers").json()["workers"]
        exported = colleague.get(f"{up.url}/api/runs/{runs[0]['id']}/export", params={"format": "md"})
        assert (exported.status_code, "Hello, Ada!" in exported.text) == (200, True)
        assert exported.headers["content-disposition"].startswith("attachment")
        assert colleague.get(f"{up.url}/api/runs/{runs[0]['id']}/export?format=exe").status_code == 400
        assert colleague.post(f"{up.url}/api/runs", json={"worker": "hello"}).status_code == 403
        wrong = colleague.get(f"{up.url}/api/agents/workers", headers={"Host": "evil.example"})
        assert wrong.status_code == 403
        assert shopfloor("token", "revoke", "viewer").returncode == 0
        assert colleague.get(f"{up.url}/api/agents/workers").status_code == 401
    assert httpx.get(f"{up.url}/api/runs/{runs[0]['id']}/export").status_code == 401


@pytest.mark.req("SF-62")
def test_a_server_says_truly_who_reaches_it(server, shopfloor):
    with_name = server("--host", socket.gethostname(), "--allow-host", "shop.example")
    assert with_name.http.get("/api/health").status_code == 200
    with_name.process.terminate()
    with_name.process.communicate()
    for words, lines in (
        ((), ["the server listens on this machine only; `shopfloor up --host 0.0.0.0` serves others too"]),
        (("--host", "0.0.0.0", "--allow-host", "shop.example"), []),
    ):
        up = server(*words)
        made = shopfloor("token", "new", f"viewer-{len(words)}")
        assert made.returncode == 0
        assert made.stderr.splitlines()[3:] == lines
        assert ("/shop.example:" in made.stderr) is bool(words)
        assert ("/shop.example:" in up.line) is bool(words)
        up.process.terminate()
        up.process.communicate()


@pytest.mark.req("SF-63")
def test_quiet_prints_only_the_result_and_aliases_do_what_they_say(shopfloor, tmp_path: Path):
    (tmp_path / "talks.py").write_text(
        "from shopfloor import worker\n\n\n@worker\nasync def talks(run) -> str:\n"
        '    """Says more than its result."""\n    await run.command("echo noise")\n    return "the result"\n'
    )
    ran = shopfloor("run", "-q", "talks", "--workers", str(tmp_path / "talks.py"))
    assert (ran.stdout, ran.stderr) == ("the result\n", "")
    assert shopfloor("ps").stdout == shopfloor("list").stdout
    assert shopfloor("logs", "last").stdout == shopfloor("show", "last").stdout
    assert "the result" not in shopfloor("logs", "--help").stderr
    assert "completed" in shopfloor("logs", "-f", "last").stdout
