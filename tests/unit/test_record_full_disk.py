"""A disk that fills up while a log is written, and has space again."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sample_events import RUN_ID, rule_violations, run_python

from shopfloor.log import decode
from shopfloor.record import Durability, read

# A limit on the size of files behaves like a full disk for the writer: first a short write, then an error when not one
# byte fits.
_WRITER = """
import json, resource, sys
from pathlib import Path
from shopfloor.errors import StorageFull
from shopfloor.record import Durability, Recorder
from tests.sample_events import RUN_ID, rule_violations, assistant_message, started

path, durability, room = Path(sys.argv[1]), Durability(sys.argv[2]), int(sys.argv[3])
recorder = Recorder(path, RUN_ID, durability=durability)
recorder.append(started())
recorder.append(assistant_message("before"), path="a")
live = recorder.subscribe()
size = path.stat().st_size
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
errors = []
for _ in range(3):
    try:
        recorder.append(assistant_message("x" * 5_000), path="a")
    except StorageFull as error:
        errors.append([error.code, error.message, error.hint])
told = {
    "errors": errors,
    "unchanged": path.stat().st_size == size == recorder.stats().size,
    "broken": [repr(one) for one in rule_violations(path)],
    "seq": recorder.seq,
    "live": len(live.drain()),
}
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
told["after"] = [recorder.append(assistant_message("after"), path="a").seq for _ in range(3)]
told["live after"] = [item.seq for item in live.drain()]
recorder.close()
print(json.dumps(told))
"""


@pytest.mark.parametrize("durability", Durability)
@pytest.mark.parametrize("room", [0, 1, 200, 5_000], ids=lambda room: f"room for {room} bytes")
def test_a_full_disk_is_a_clear_error_and_writing_continues_once_there_is_space(
    log_path: Path, durability: Durability, room: int
) -> None:
    report: dict[str, Any] = json.loads(run_python(_WRITER, log_path, durability.value, room))
    assert [code for code, _, _ in report["errors"]] == ["storage_full"] * 3
    assert all(str(log_path) in message and "free some space" in hint for _, message, hint in report["errors"])
    assert report["unchanged"]
    assert (report["broken"], report["seq"], report["live"]) == ([], 2, 0)
    assert (report["after"], report["live after"]) == ([3, 4, 5], [3, 4, 5])
    assert rule_violations(log_path) == []
    assert [decode(entry.raw).run_id for entry in read(log_path)] == [RUN_ID] * 5


_SMALL = """
import resource, sys
from pathlib import Path
from shopfloor.errors import StorageFull
from shopfloor.record import Recorder
from tests.sample_events import RUN_ID, assistant_message, started

path = Path(sys.argv[1])
recorder = Recorder(path, RUN_ID)
recorder.append(started())
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 1_000, hard))
for text in ["x" * 5_000, "fits"]:
    try:
        print(recorder.append(assistant_message(text), path="a").seq)
    except StorageFull as error:
        print(error.code)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
recorder.close()
"""


def test_a_line_that_still_fits_is_written_after_one_that_did_not(log_path: Path) -> None:
    assert run_python(_SMALL, log_path).split() == ["storage_full", "2"]
    assert rule_violations(log_path) == []
