"""A real agent under the installed `shopfloor`, told a scenario: what it did, by the log that was kept of it."""

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
LATE = {"opencode"}
"""Those that tell of a tool only when it has ended."""

Fields = dict[str, Any]


class Log:
    """The events of one run, as they stand in its file."""

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
        """As it began."""
        return self.payloads("step.started")[0]["session"]

    @property
    def session_id(self) -> str | None:
        """As it is known at the end."""
        return self.payloads("step.completed")[-1]["session"]["session_id"]

    def _said(self, kind: str, field: str) -> list[str]:
        messages = self.payloads("message.assistant")
        return [block[field] for said in messages for block in said["blocks"] if block["type"] == kind]

    @property
    def texts(self) -> list[str]:
        return self._said("text", "text")

    @property
    def text(self) -> str:
        """All that it said: some agents say it in pieces."""
        return "".join(self.texts)

    @property
    def thoughts(self) -> list[str]:
        return self._said("thinking", "thinking")

    @property
    def calls(self) -> list[Fields]:
        return self.payloads("tool.call")

    @property
    def results(self) -> list[Fields]:
        return self.payloads("tool.result")

    @property
    def commands(self) -> dict[str, Fields]:
        """The results, by what was in the call's input: each call has one, in any order."""
        by_id = {result["call_id"]: result for result in self.results}
        assert len(by_id) == len(self.results)
        assert {call["call_id"] for call in self.calls} == set(by_id)
        return {json.dumps(call["input"]): by_id[call["call_id"]] for call in self.calls}

    def result_of(self, part: str) -> Fields:
        """The result of the one call that has this in its input."""
        (found,) = [result for given, result in self.commands.items() if part in given]
        return found

    def notes(self, kind: str) -> list[Fields]:
        notes = [message.get("note") for message in self.payloads("message.assistant")]
        return [note for note in notes if note is not None and note["kind"] == kind]

    @property
    def unparsed_lines(self) -> list[str]:
        """Lines of the agent's that were not understood. Pieces of messages are no such lines."""
        messages = self.payloads("message.assistant")
        streamed = [block for said in messages for block in said["blocks"] if block["type"] == "stream"]
        return [block["chunk"] for block in streamed if "offset" not in block]

    @property
    def partial_texts(self) -> list[tuple[str, str]]:
        """What pieces of messages say, by message and block, joined: the id of the message, and the text."""
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
        cut = [said for said in self.payloads("message.assistant") if said.get("stop_reason") == "interrupted"]
        return [block.get("text", block.get("thinking")) for said in cut for block in said["blocks"]]


class FinishedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, and what was printed meanwhile."""

    log: Log
    children: list[Log]
    code: int
    out: str
    err: str


class AgentRunner:
    """One agent in one folder, with one storage: its scenario can be changed between runs."""

    def __init__(self, provider: str, scenario: str, server: ModelServer, folder: Path) -> None:
        self.provider = provider
        self.cwd = folder / "place"
        self.cwd.mkdir()
        self._folder = folder
        self._server = server
        self._mark = f"driven-{uuid.uuid4()}"
        self._storage = folder / "storage"
        self._started: list[subprocess.Popen[str]] = []
        self.set_scenario(scenario)

    def set_scenario(self, scenario: str) -> None:
        """What its model will say from now on."""
        key = uuid.uuid4().hex[:8]
        self.model = self._server.scenario(PROGRAMS[self.provider], scenario, key)
        env = agent_environment(self.provider, self.model.url, self._folder / "home")
        self.env = {**env, "SHOPFLOOR_STORAGE": str(self._storage), "DRIVEN": self._mark}

    def shopfloor(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs the command to its end."""
        return subprocess.run([SHOPFLOOR, *words], env=self.env, capture_output=True, text=True, timeout=SECONDS)

    def start(self, *words: str, prompt: str = PROMPT) -> subprocess.Popen[str]:
        """Begins a run and leaves it running."""
        command = [SHOPFLOOR, "run", "--provider", self.provider, prompt, "--cwd", str(self.cwd), *words]
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, env=self.env, text=True, **pipes)
        self._started.append(process)
        return process

    def run(self, *words: str, prompt: str = PROMPT) -> FinishedRun:
        before = frozenset(self._paths())
        return self.end(self.start(*words, prompt=prompt), before)

    def end(self, process: subprocess.Popen[str], before: frozenset[Path] = frozenset()) -> FinishedRun:
        """Waits for the run's end: its logs are whole, and nothing of it is left."""
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            self.kill_remaining()
            out, err = process.communicate()
            raise AssertionError(f"it has not ended after {SECONDS} s: {out}{err}") from None
        logs = [Log(path) for path in self._paths() if path not in before]
        roots = [log for log in logs if log.first.get("parent") is None]
        assert len(roots) == 1, f"{len(roots)} runs: {out}{err}"
        wait_until(lambda: not self.left(), "an end of every process")
        verified = self.shopfloor("verify", "--all")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        assert [log.unparsed_lines for log in logs if log.unparsed_lines] == []
        children = [log for log in logs if log is not roots[0]]
        return FinishedRun(log=roots[0], children=children, code=process.returncode, out=out, err=err)

    def wait_for_tool(self, process: subprocess.Popen[str]) -> Log:
        """Until the tool of the scenario `long` runs."""
        begun = self.cwd / "begun"
        wait_until(lambda: begun.exists() or process.poll() is not None, "the tool", SECONDS)
        assert begun.exists(), process.communicate()
        (path,) = self._paths()
        if self.provider not in LATE:
            # What it prints comes a little later than what it does.
            wait_until(lambda: Log(path).calls, "the call on record")
        return Log(path)

    def logs(self) -> list[Log]:
        """As they are now."""
        return [Log(path) for path in self._paths()]

    def left(self) -> dict[int, str]:
        """The live processes that came from here: they have our mark, or work in our folder."""
        found: dict[int, str] = {}
        for process in Path("/proc").iterdir():
            if not process.name.isdecimal() or int(process.name) == os.getpid():
                continue
            try:
                state = (process / "stat").read_bytes().rpartition(b")")[2].split()[0]
                marked = self._mark.encode() in (process / "environ").read_bytes()
                if state != b"Z" and (marked or (process / "cwd").readlink().is_relative_to(self._folder)):
                    found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
        return found

    def kill_remaining(self) -> None:
        """Ends what is left of a test that failed."""
        for pid in self.left():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self._started:
            process.communicate()

    def _paths(self) -> list[Path]:
        return sorted((self._storage / "transcripts").glob("*.jsonl"))
