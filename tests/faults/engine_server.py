"""The installed server with runs in the middle of every kind of step."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.cli.test_run import processes_with
from tests.login import token_of, url_of
from tests.model_server.script import Text, Turn
from tests.shorter_limits import SHOPFLOOR, shopfloor_with
from tests.timeouts import TIMEOUT_SECONDS, wait_until

from shopfloor.log import Event, RunCompleted, ToolCall, ToolResult, Verifier, decode
from shopfloor.record import Storage, read

TOOLS = """
import asyncio
from pathlib import Path

def note(given):
    with open(given["notes"], "a") as file:
        file.write(given["what"] + "\\n")

async def dawdle(given):
    note(given)
    while not Path(given["go"]).exists():
        await asyncio.sleep(0.02)
    return "dawdled"
"""
_WAIT = "while [ ! -e {{GO}} ]; do sleep 0.1; done; echo through"
_NOTE = "input: {notes: '{{NOTES}}', what: 'before {{WHAT}}'}"
STEPS = {
    "model": """
        Start: {block: start-thread, model: anthropic/claude-test}
        Answer: {block: next-message, output: OUT}
    """,
    "reading": """
        Look: {block: tool-call, tool: look, input: {notes: '{{NOTES}}', what: reading, go: '{{GO}}'}, output: OUT}
    """,
    "acting": """
        Act: {block: tool-call, tool: act, input: {notes: '{{NOTES}}', what: acting, go: '{{GO}}'}, output: OUT}
    """,
    "client-tool": "Look: {block: tool-call, tool: outside, output: OUT}",
    "question": "Ask: {block: tool-call, tool: ask, input: {question: 'Shall we?'}, output: OUT}",
    "sub-run": """
        Call: {block: run-worker, worker: reading, input: {NOTES: '{{NOTES}}', GO: '{{GO}}', WHAT: inner}, output: OUT}
    """,
    "command": f"Do: {{block: command, command: '{_WAIT}', output: OUT}}",
    "branches": """
        Both:
          block: parallel
          branches:
            one: {Look: {block: tool-call, tool: look, input: {notes: '{{NOTES}}', what: one, go: '{{GO}}'}, output: OUT}}
            two: {Look: {block: tool-call, tool: outside}}
    """,
    "loops": """
        Each:
          block: for-each
          each: [a, b]
          collect: OUT
          output: OUT
          steps:
            Inner:
              block: for-each
              each: [1, 2]
              as: NUMBER
              collect: OUT
              output: OUT
              steps:
                Count: {block: tool-call, tool: note, input: {notes: '{{NOTES}}', what: 'count {{ITEM}}{{NUMBER}}'}}
                Look:
                  block: tool-call
                  tool: look
                  input: {notes: '{{NOTES}}', what: 'loop {{ITEM}}{{NUMBER}}', go: '{{GO}}'}
                  output: OUT
    """,
}
STATES = list(STEPS)
WAITING = {"client-tool", "question", "branches"}
MODEL = [Turn(say=[Text(text="half of it")], chunk=4, hang_after=1), Turn(times=0, say=[Text(text="all of it")])]
"""The script of a model that stops in the middle of its first reply."""


class Deployment:
    """A folder with workers and a storage, for one server after another."""

    def __init__(self, folder: Path, **env: str) -> None:
        self.folder = folder
        self.storage = Storage(folder / "storage")
        self.notes, self.go = folder / "notes", folder / "go"
        self.mark = f"shop-{os.getpid()}-{folder.name}"
        self.env = {
            **os.environ,
            **env,
            "SHOPFLOOR_STORAGE": str(self.storage.root),
            "SF_TEST": self.mark,
            "SHOPFLOOR_PROVIDER_CHECK": "0",
        }
        tools = folder / "tools.py"
        tools.write_text(TOOLS)
        for slug, steps in STEPS.items():
            self.worker(slug, steps, tools)

    def worker(self, slug: str, steps: str, tools: Path) -> None:
        home = self.folder / "workers" / slug
        home.mkdir(parents=True)
        inner = textwrap.indent(textwrap.dedent(steps).strip(), "  ")
        (home / "worker.yaml").write_text(
            f"input: {{NOTES: {{}}, GO: {{}}, WHAT: {{default: {slug}}}}}\n"
            "tools:\n"
            f"  look: {{description: '', handler: '{tools}:dawdle', readOnly: true}}\n"
            f"  act: {{description: '', handler: '{tools}:dawdle'}}\n"
            f"  note: {{description: '', handler: '{tools}:note'}}\n"
            "  outside: {description: ''}\n"
            f"steps:\n  Before: {{block: tool-call, tool: note, {_NOTE}}}\n{inner}\noutput: OUT\n"
        )

    @contextmanager
    def up(self, *words: str, **limits: float) -> Iterator[Server]:
        """Start a server; `limits` replace some of its limits."""
        server = Server(self, *words, **limits)
        try:
            yield server
        finally:
            server.close()

    def runs(self) -> list[str]:
        return sorted(path.stem for path in self.storage.transcripts.glob("*.jsonl"))

    def events(self, run_id: str) -> list[Event]:
        path = self.storage.log_path(run_id)
        return [decode(entry.raw) for entry in read(path, on_problem=lambda problem: None)] if path.exists() else []

    def outcome(self, run_id: str) -> RunCompleted | None:
        last = [event.payload for event in self.events(run_id)[-1:]]
        return last[0] if last and isinstance(last[0], RunCompleted) else None

    def note_counts(self) -> Counter[str]:
        return Counter(self.notes.read_text().splitlines()) if self.notes.exists() else Counter()

    def wait_until_all_ended(self, seconds: float = 60) -> dict[str, RunCompleted]:
        """Wait until every run has an outcome, check that logs are complete and no process is left, and return the outcomes."""
        wait_until(lambda: all(self.outcome(one) for one in self.runs()), "every outcome", seconds)
        for run_id in self.runs():
            verifier = Verifier(run_id)
            lines = self.storage.log_path(run_id).read_bytes().splitlines(keepends=True)
            assert [problem for line in lines for problem in verifier.line(line)] == []
            outcomes = [event for event in self.events(run_id) if isinstance(event.payload, RunCompleted)]
            assert len(outcomes) == 1
        wait_until(lambda: self.children() == [], "no process to be left")
        return {run_id: outcome for run_id in self.runs() if (outcome := self.outcome(run_id))}

    def children(self) -> list[str]:
        """Return the processes that our runs have started and that still exist."""
        return [line for line in processes_with(self.mark) if SHOPFLOOR not in line and "reaper.py" not in line]

    def open_calls(self, run_id: str) -> list[str]:
        payloads = [event.payload for event in self.events(run_id)]
        done = {one.call_id for one in payloads if isinstance(one, ToolResult)}
        return [one.call_id for one in payloads if isinstance(one, ToolCall) and one.awaits and one.call_id not in done]


class Server:
    """Start `shopfloor up` as a user does."""

    def __init__(self, deployment: Deployment, *words: str, **limits: float) -> None:
        self.deployment = deployment
        workers = str(deployment.folder / "workers")
        command = [*shopfloor_with(limits), "up", "--port", "0", "--workers", workers, *words]
        self.process = subprocess.Popen(command, env=deployment.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        assert line.startswith("Shopfloor is up: "), line + self.process.communicate()[1].decode()
        headers = {"Authorization": f"Bearer {token_of(Storage(Path(deployment.env['SHOPFLOOR_STORAGE'])))}"}
        self.http = httpx.Client(base_url=url_of(line), headers=headers, timeout=TIMEOUT_SECONDS)

    def post(self, path: str, **body: Any) -> dict[str, Any]:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def dispatch(self, worker: str, **given: Any) -> str:
        values = {"NOTES": str(self.deployment.notes), "GO": str(self.deployment.go), **given}
        return self.post("/api/runs", worker=worker, input=values)["run_id"]

    def start_all(self) -> dict[str, str]:
        """Start a run in the middle of each kind of step, and return the runs by kind."""
        runs = {state: self.dispatch(state) for state in STATES}
        wanted = {f"before {state}" for state in STATES} | {"reading", "acting", "before inner", "one", "loop a1"}
        wait_until(lambda: wanted <= set(self.deployment.note_counts()), f"{wanted} to be noted")
        for state in WAITING:
            wait_until(lambda state=state: self.deployment.open_calls(runs[state]), f"{state} to wait")
        wait_until(lambda: self.deployment.note_counts()["reading"] == 2, "the sub-run to be in the middle too")
        wait_until(self.deployment.children, "the command to run")
        return runs

    def answer_all(self, runs: dict[str, str]) -> None:
        for state in WAITING:
            for call_id in self.deployment.open_calls(runs[state]):
                self.post(f"/api/runs/{runs[state]}/answer", call_id=call_id, answer="answered")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=TIMEOUT_SECONDS)
        return self.process.returncode

    def close(self) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.kill()
