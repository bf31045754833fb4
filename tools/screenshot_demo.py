"""A run with a sub-run, recorded with the Python API, for `shopfloor tree` in the picture."""

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


def start_run(log: Recorder, name: str) -> None:
    log.append(RunStarted(name=name, kind="worker", attempt=1, host="demo"))


def end_run(log: Recorder, name: str, started_at: float) -> None:
    log.append(RunCompleted(name=name, kind="worker", status="completed", duration_ms=ms_since(started_at)))


def run_step(log: Recorder, path: str, command: str, number: int = 1) -> None:
    """Run a command as a step."""
    name = path.rpartition(".")[2]
    log.append(StepStarted(name=name, kind="command", try_=number), path=path)
    started_at = time.monotonic()
    code = subprocess.run(["sh", "-c", command], capture_output=True, check=False).returncode
    error = f"exit code {code}" if code else None
    completed = StepCompleted(name=name, kind="command", try_=number, error=error, duration_ms=ms_since(started_at))
    log.append(completed, path=path)


def run_checks(storage: Storage, log: Recorder) -> None:
    """Run a step of the release that has an inner step and a run of another worker."""
    started_at, child_id = time.monotonic(), new_run_id()
    log.append(StepStarted(name="checks", kind="parallel", try_=1), path="checks")
    run_step(log, "checks.lint", "sleep 0.2")
    called = time.monotonic()
    call = CallStarted(name="tests", kind="call_workflow", try_=1, worker="tests")
    log.append(call, path="checks.tests", child_run_id=child_id)
    with Recorder(storage.log_path(child_id), child_id, parent_run_id=log.run_id) as child:
        start_run(child, "tests")
        run_step(child, "unit", "python3 -m unittest")
        run_step(child, "browser", "sleep 0.3")
        end_run(child, "tests", called)
    answer = CallCompleted(name="tests", kind="call_workflow", try_=1, duration_ms=ms_since(called))
    log.append(answer, path="checks.tests", child_run_id=child_id)
    log.append(StepCompleted(name="checks", kind="parallel", try_=1, duration_ms=ms_since(started_at)), path="checks")


def ms_since(started_at: float) -> int:
    return int((time.monotonic() - started_at) * 1000)


def main() -> None:
    storage, run_id, started_at = Storage.default(), new_run_id(), time.monotonic()
    with Recorder(storage.log_path(run_id), run_id) as log:
        start_run(log, "release")
        run_checks(storage, log)
        run_step(log, "publish", "exit 1")
        run_step(log, "publish", "sleep 0.1", number=2)
        end_run(log, "release", started_at)


if __name__ == "__main__":
    main()
