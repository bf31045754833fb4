"""The rule that decides whether a server may resume a run."""

from __future__ import annotations

import pytest

from shopfloor.engine.resumption import refusal_reason
from shopfloor.log import RunStarted

FOLDERS = ["/home/ada/billing", "/home/ada/team"]
HASHES = {"sha256:1"}


def start(**facts: object) -> RunStarted:
    given = {"cwd": "/home/ada/team", "definition_hash": "sha256:1", "executor": "caller", **facts}
    return RunStarted(name="w", kind="worker", attempt=1, host="local-1", **given)  # type: ignore[arg-type]


AGAIN = RunStarted(name="w", kind="worker", attempt=2, host="local-2")


@pytest.mark.req("SF-31")
@pytest.mark.parametrize(
    ("starts", "reason"),
    [
        ([], None),
        ([start()], None),
        ([start(cwd="/home/ada/team/deep/inside")], None),
        ([start(cwd="/home/ada/team-2")], "its folder is not in a project of the server: /home/ada/team-2"),
        ([start(cwd="/home/ada")], "its folder is not in a project of the server: /home/ada"),
        ([start(cwd=None)], "its folder is not in a project of the server: none is recorded"),
        ([start(definition_hash="sha256:2")], "the server does not find its worker as it was when the run began"),
        ([start(masked=True)], "its record is masked, and a server cannot be told what to mask"),
        # A run of a server whose second attempt was masked by a shell.
        (
            [start(executor=None), start(masked=True)],
            "its record is masked, and a server cannot be told what to mask",
        ),
        # Resumed by a server: from then on the run belongs to the server.
        ([start(cwd="/elsewhere"), AGAIN], None),
        ([start(executor=None, cwd="/elsewhere", definition_hash="sha256:2")], None),
    ],
)
def test_a_run_of_a_caller_is_resumed_by_a_server_only_if_allowed(starts: list[RunStarted], reason: str | None) -> None:
    assert refusal_reason(starts, FOLDERS, HASHES) == reason
