"""A real agent that plays a scenario under the installed `shopfloor`, and the log of its run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Any

import msgspec
from tests.agents.agent_environment import PROGRAMS, agent_environment
from tests.cli.conftest import SHOPFLOOR
from tests.model_server.server import ModelServer
from tests.timeouts import wait_until

PROMPT = "Please do the scripted task."
SECONDS = 60
REPORTS_TOOLS_LATE = {"opencode"}
"""Providers that report a tool only when it has ended."""

Fields = dict[str, Any]


class Log:
    """The events of one run, as its file has them."""

    def __init__(self, path: Path) -> None:
        self.run_id = path.stem
        self.events: list[Fields] = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]

    def payloads(self, kind: str) -> list[Fields]:
        return [event["payload"] for event in self.events if event["type"] == kind]

    @property
    def first(self) -> Fields:
        return self.payloads("run.started")[0]

    @property
    def outcome(self) -> Fields:
        assert self.events[-1]["type"] == "run.completed"
        return self.events[-1]["payload"]

    @property
    def error(self) -> Fields:
        assert self.outcome["status"] != "completed"
        return self.outcome["error"]

    @property
    def session(self) -> Fields:
        """The session at its start."""
        return self.payloads("step.started")[0]["session"]

    @property
    def session_id(self) -> str | None:
        """The id of the session at its end."""
        return self.payloads("step.completed")[-1]["session"]["session_id"]

    def _block_fields(self, kind: str, field: str) -> list[str]:
        messages = self.payloads("message.assistant")
        return [block[field] for message in messages for block in message["blocks"] if block["type"] == kind]

    @property
    def texts(self) -> list[str]:
        return self._block_fields("text", "text")

    @property
    def text(self) -> str:
        """The whole text: some agents send it in pieces."""
        return "".join(self.texts)

    @property
    def thoughts(self) -> list[str]:
        return self._block_fields("thinking", "thinking")

    @property
    def calls(self) -> list[Fields]:
        return self.payloads("tool.call")

    @property
    def results(self) -> list[Fields]:
        return self.payloads("tool.result")

    @property
    def commands(self) -> dict[str, Fields]:
        """The results by the input of their calls. Each call has one result, in any order."""
        by_id = {result["call_id"]: result for result in self.results}
        assert len(by_id) == len(self.results)
        assert {call["call_id"] for call in self.calls} == set(by_id)
        return {json.dumps(call["input"]): by_id[call["call_id"]] for call in self.calls}

    def result_of(self, part: str) -> Fields:
        """Return the result of the only call whose input contains `part`."""
        (matching,) = [result for tool_input, result in self.commands.items() if part in tool_input]
        return matching

    def notes(self, kind: str) -> list[Fields]:
        notes = [message.get("note") for message in self.payloads("message.assistant")]
        return [note for note in notes if note is not None and note["kind"] == kind]

    @property
    def unparsed_lines(self) -> list[str]:
        """Output of the agent that was not understood. Parts of unfinished messages do not count."""
        messages = self.payloads("message.assistant")
        streamed = [block for message in messages for block in message["blocks"] if block["type"] == "stream"]
        return [block["chunk"] for block in streamed if "offset" not in block]

    @property
    def partial_texts(self) -> list[tuple[str, str]]:
        """The text of each block of an unfinished message, with the id of the message."""
        joined: dict[tuple[str, int], str] = {}
        for message in self.payloads("message.assistant"):
            for block in message["blocks"]:
                if block["type"] == "stream" and "offset" in block:
                    key = message["message_id"], block["block"]
                    assert block["offset"] == len(joined.get(key, ""))
                    joined[key] = joined.get(key, "") + block["chunk"]
        return [(message_id, text) for (message_id, _), text in joined.items()]

    @property
    def interrupted_texts(self) -> list[str]:
        """The texts and thoughts of messages that were not completed."""
        interrupted = [
            message for message in self.payloads("message.assistant") if message.get("stop_reason") == "interrupted"
        ]
        return [block.get("text", block.get("thinking")) for message in interrupted for block in message["blocks"]]


class FinishedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, and its output."""

    log: Log
    children: list[Log]
    code: int
    out: str
    err: str


class AgentRunner:
    """An agent in a folder with its own storage. Its scenario can be changed between runs."""

    def __init__(self, provider: str, scenario: str, server: ModelServer, folder: Path) -> None:
        self.provider = provider
        self.cwd = folder / "place"
        self.cwd.mkdir()
        self._folder = folder
        self._server = server
        self._marker = f"driven-{uuid.uuid4()}"
        self._storage = folder / "storage"
        self._started: list[subprocess.Popen[str]] = []
        self.set_scenario(scenario)

    def set_scenario(self, scenario: str) -> None:
        """Set the scenario of the model for the next runs."""
        key = uuid.uuid4().hex[:8]
        self.model = self._server.scenario(PROGRAMS[self.provider], scenario, key)
        env = agent_environment(self.provider, self.model.url, self._folder / "home")
        self.env = {**env, "SHOPFLOOR_STORAGE": str(self._storage), "DRIVEN": self._marker}

    def shopfloor(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run([SHOPFLOOR, *options], env=self.env, capture_output=True, text=True, timeout=SECONDS)

    def start(self, *options: str, prompt: str = PROMPT) -> subprocess.Popen[str]:
        """Start a run and leave it running."""
        command = [SHOPFLOOR, "run", "--provider", self.provider, prompt, "--cwd", str(self.cwd), *options]
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, env=self.env, text=True, **pipes)
        self._started.append(process)
        return process

    def run(self, *options: str, prompt: str = PROMPT) -> FinishedRun:
        known_paths = frozenset(self._paths())
        return self.end(self.start(*options, prompt=prompt), known_paths)

    def end(self, process: subprocess.Popen[str], known_paths: frozenset[Path] = frozenset()) -> FinishedRun:
        """Wait for the end of a run. Check that its logs are complete and that no process is left."""
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.kill_remaining()
            out, err = process.communicate()
            raise AssertionError(f"it has not ended after {SECONDS} s: {out}{err}") from None
        logs = [Log(path) for path in self._paths() if path not in known_paths]
        roots = [log for log in logs if log.first.get("parent") is None]
        assert len(roots) == 1, f"{len(roots)} runs: {out}{err}"
        wait_until(lambda: not self.live_processes(), "an end of every process")
        verified = self.shopfloor("verify", "--all")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert [log.unparsed_lines for log in logs if log.unparsed_lines] == []
        children = [log for log in logs if log is not roots[0]]
        return FinishedRun(log=roots[0], children=children, code=process.returncode, out=out, err=err)

    def wait_for_tool(self, process: subprocess.Popen[str]) -> Log:
        """Wait until the tool of the scenario `long` runs."""
        started_file = self.cwd / "begun"
        wait_until(lambda: started_file.exists() or process.poll() is not None, "the tool", SECONDS)
        assert started_file.exists(), process.communicate()
        (path,) = self._paths()
        if self.provider not in REPORTS_TOOLS_LATE:
            # The output of the agent comes a little later than the effect of its tool.
            wait_until(lambda: Log(path).calls, "the call on record")
        return Log(path)

    def logs(self) -> list[Log]:
        """Return the logs as they are now."""
        return [Log(path) for path in self._paths()]

    def live_processes(self) -> dict[int, str]:
        """Return the live processes of this runner: they have its marker, or work in its folder."""
        processes: dict[int, str] = {}
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal() or int(process.name) == os.getpid():
                continue
            try:
                state = (process / "stat").read_bytes().rpartition(b")")[2].split()[0]
                marked = self._marker.encode() in (process / "environ").read_bytes()
                if state != b"Z" and (marked or (process / "cwd").readlink().is_relative_to(self._folder)):
                    processes[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return processes

    def kill_remaining(self) -> None:
        """Kill all processes that a failed test left behind."""
        for pid in self.live_processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self._started:
            process.communicate()

    def _paths(self) -> list[Path]:
        return sorted((self._storage / "transcripts").glob("*.jsonl"))
