"""Ctrl-C in the middle of an append: Python may raise KeyboardInterrupt between any two steps of the writer."""

import json
from pathlib import Path

from tests.sample_events import rule_violations, run_python

_WRITER = """
import json, random, signal, sys
from pathlib import Path
from shopfloor.record import Durability, Recorder
from tests.sample_events import RUN_ID, completed, assistant_message, started

def interrupt(*_):
    raise KeyboardInterrupt

random.seed(1)
signal.signal(signal.SIGALRM, interrupt)
recorder = Recorder(Path(sys.argv[1]), RUN_ID, durability=Durability.OS)
recorder.append(started())
acknowledged, interrupted = [], 0
for _ in range(1_000):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.000_005, 0.000_2))
        while True:
            acknowledged.append(recorder.append(assistant_message("x" * 200), path="a").seq)
    except KeyboardInterrupt:
        interrupted += 1
recorder.append(completed("cancelled"))
recorder.close()
print(json.dumps([interrupted, acknowledged]))
"""


def test_an_interrupted_append_leaves_a_valid_log_that_can_be_continued(log_path: Path) -> None:
    # Not under a tracer, with which a signal may come between the end of a `with` block and the release of its lock.
    interrupted, acknowledged = json.loads(run_python(_WRITER, log_path, traced=False))
    assert interrupted == 1_000
    assert rule_violations(log_path)[:3] == []
    written = [json.loads(line)["seq"] for line in log_path.read_bytes().splitlines()]
    assert len(set(acknowledged)) == len(acknowledged)
    assert set(acknowledged) <= set(written)
