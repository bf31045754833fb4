"""A run with a sub-run, recorded with the Python API: what `shopfloor tree` draws in the picture."""

import subprocess
import time

from shopfloor.log import (
    CallCompleted,
    CallStarted,
    RunCompleted,
    RunStarted,
    StepCompleted,
    StepStarted,
    new_run_id,
)
from shopfloor.record import Recorder, Storage


def begin(log: Recorder, name: str) -> None:
    log.append(RunStarted(name=name, kind="worker", attempt=1, host="demo"))


def end(log: Recorder, name: str, began: float) -> None:
    log.append(RunCompleted(name=name, kind="worker", status="completed", duration_ms=ms_since(began)))


def step(log: Recorder, path: str, command: str, number: int = 1) -> None:
    """Runs a command as a step."""
    name = path.rpartition(".")[2]
    log.append(StepStarted(name=name, kind="command", try_=number), path=path)
    began = time.monotonic()
    code = subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode
    error = f"exit code {code}" if code else None
    completed = StepCompleted(name=name, kind="command", try_=number, error=error, duration_ms=ms_since(began))
    log.append(completed, path=path)


def checks(storage: Storage, log: Recorder) -> None:
    """A step of the release: one of its own, and a run of another worker."""
    began, child_id = time.monotonic(), new_run_id()
    log.append(StepStarted(name="checks", kind="parallel", try_=1), path="checks")
    step(log, "checks.lint", "sleep 0.2")
    called = time.monotonic()
    call = CallStarted(name="tests", kind="call_workflow", try_=1, worker="tests")
    log.append(call, path="checks.tests", child_run_id=child_id)
    with Recorder(storage.log_path(child_id), child_id, parent_run_id=log.run_id) as child:
        begin(child, "tests")
        step(child, "unit", "python3 -m unittest")
        step(child, "browser", "sleep 0.3")
        end(child, "tests", called)
    answer = CallCompleted(name="tests", kind="call_workflow", try_=1, duration_ms=ms_since(called))
    log.append(answer, path="checks.tests", child_run_id=child_id)
    log.append(StepCompleted(name="checks", kind="parallel", try_=1, duration_ms=ms_since(began)), path="checks")


def ms_since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)


def main() -> None:
    storage, run_id, began = Storage.default(), new_run_id(), time.monotonic()
    with Recorder(storage.log_path(run_id), run_id) as log:
        begin(log, "release")
        checks(storage, log)
        step(log, "publish", "exit 1")
        step(log, "publish", "sleep 0.1", number=2)
        end(log, "release", began)


if __name__ == "__main__":
    main()
