"""Memory of the real server: output of commands and large inputs do not stay in memory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.faults.engine_server import Deployment
from tests.timeouts import wait_until

from shopfloor.limits import COMMAND_OUTPUT_CHARS
from shopfloor.log import AssistantMessage, StepCompleted, TextBlock

MEGABYTE = 1_000_000
OUTPUT_BYTES = 60 * MEGABYTE
INPUT_BYTES = 9 * MEGABYTE
INPUT_RUNS = 12

WORKERS = {
    "loud": f"""
steps:
  Print: {{block: command, command: "head -c {OUTPUT_BYTES} /dev/zero | tr '\\\\0' x | fold -w 99", output: OUT}}
  Next: {{block: command, command: [sh, -c, "echo got"], output: GOT}}
output: {{got: "{{{{GOT}}}}", out: "{{{{OUT}}}}"}}
""",
    "large-input": """
input: {TEXT: {}}
steps:
  Do: {block: command, command: [echo, done], output: OUT}
output: OUT
""",
}


def memory(pid: int, field: str) -> int:
    """Return `VmRSS` or `VmHWM` of a process in bytes."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.req("SF-3")
def test_neither_output_nor_input_stays_in_the_memory_of_the_server(tmp_path: Path):
    deployment = Deployment(tmp_path)
    for slug, text in WORKERS.items():
        (tmp_path / "workers" / slug).mkdir()
        (tmp_path / "workers" / slug / "worker.yaml").write_text(text)
    with deployment.up() as server:
        pid = server.process.pid
        # The first run loads modules lazily.
        first = server.post("/api/runs", worker="large-input", input={"TEXT": "small"})["run_id"]
        wait_until(lambda: deployment.outcome(first), "the first run to end")

        before = memory(pid, "VmHWM")
        loud = server.post("/api/runs", worker="loud", input={})["run_id"]
        path = deployment.storage.log_path(loud)
        wait_until(lambda: path.exists() and b'"run.completed"' in _end_of(path), "the loud run to end", 180)
        assert memory(pid, "VmHWM") - before < 50 * MEGABYTE
        _check_output(deployment, loud)

        before = memory(pid, "VmRSS")
        for _ in range(INPUT_RUNS):
            run_id = server.post("/api/runs", worker="large-input", input={"TEXT": "y" * INPUT_BYTES})["run_id"]
            log = deployment.storage.log_path(run_id)
            wait_until(lambda log=log: log.exists() and log.stat().st_size > INPUT_BYTES, "the run to begin")
            # Watchers of the same run share their reads.
            with server.http.stream("GET", f"/api/runs/{run_id}/stream") as stream:
                size = sum(len(part) for part in stream.iter_raw())
            assert size > INPUT_BYTES
        assert memory(pid, "VmRSS") - before < INPUT_RUNS * INPUT_BYTES


def _check_output(deployment: Deployment, run_id: str) -> None:
    """The log has every byte; later steps get the end of the output, and the step reports the truncation."""
    outcome = deployment.outcome(run_id)
    assert outcome is not None
    assert outcome.result["got"] == "got"
    assert COMMAND_OUTPUT_CHARS - 1 <= len(outcome.result["out"]) <= COMMAND_OUTPUT_CHARS
    size, results = 0, []
    for event in deployment.events(run_id):
        match event.payload:
            case AssistantMessage(blocks=blocks):
                size += sum(len(block.text) for block in blocks if isinstance(block, TextBlock))
            case StepCompleted(result=result):
                results.append(result)
            case _:
                pass
    assert size == OUTPUT_BYTES + (OUTPUT_BYTES - 1) // 99 + len("got\n")
    assert results == [{"exit_code": 0, "stdout_truncated": True}, {"exit_code": 0}]


def _end_of(path: Path) -> bytes:
    """Return the last few lines of a log, whose outcome repeats 1 MiB of output."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 2 * COMMAND_OUTPUT_CHARS))
        return file.read()
