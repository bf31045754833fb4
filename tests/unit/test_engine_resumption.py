"""The rules by which a server may resume a run."""

from __future__ import annotations

import pytest

from shopfloor.engine.resumption import decide_refusal_reason
from shopfloor.log import RunStarted

FOLDERS = ["/home/ada/billing", "/home/ada/team"]
HASHES = {"sha256:1"}


def start(**changes: object) -> RunStarted:
    fields = {"cwd": "/home/ada/team", "definition_hash": "sha256:1", "executor": "caller", **changes}
    return RunStarted(name="w", kind="worker", attempt=1, host="local-1", **fields)  # type: ignore[arg-type]


SECOND = RunStarted(name="w", kind="worker", attempt=2, host="local-2")


@pytest.mark.req("SF-31")
@pytest.mark.parametrize(
    ("starts", "reason"),
    [
        ([], None),
        ([start()], None),
        ([start(cwd="/home/ada/team/deep/inside")], None),
        ([start(cwd="/home/ada/team-2")], "its folder is not in a project of the server: /home/ada/team-2"),
        ([start(cwd="/home/ada")], "its folder is not in a project of the server: /home/ada"),
        ([start(cwd=None)], "its folder is not in a project of the server: no folder is recorded"),
        ([start(definition_hash="sha256:2")], "the server does not have the worker as it was when the run started"),
        ([start(masked=True)], "its record is masked, and a server does not know what to mask"),
        # A run of a server, whose second attempt a shell has masked.
        (
            [start(executor=None), start(masked=True)],
            "its record is masked, and a server does not know what to mask",
        ),
        # After a server has resumed the run, the run belongs to the server.
        ([start(cwd="/elsewhere"), SECOND], None),
        ([start(executor=None, cwd="/elsewhere", definition_hash="sha256:2")], None),
    ],
)
def test_a_server_resumes_a_run_of_a_caller_only_if_that_is_allowed(
    starts: list[RunStarted], reason: str | None
) -> None:
    assert decide_refusal_reason(starts, FOLDERS, HASHES) == reason
