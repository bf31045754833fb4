"""Sub-agents whose beginning and end come in an order that nobody expects: every log stays one that can be verified."""

from shopfloor.engine.agents.transcriber import NO_PRICE, PendingEvent, Transcriber
from shopfloor.log import CallCompleted, CallStarted, RunCompleted, RunStarted, new_run_id
from shopfloor.ports import AgentReport, SessionEnded, SubAgentEnded, SubAgentStarted

IDS = {name: new_run_id() for name in ("session", "outer", "inner")}
OUTER = SubAgentStarted(agent="outer", name="reviewer")
INNER = SubAgentStarted(agent="inner", name="reader", parent="outer")


def written(*reports: AgentReport) -> list[PendingEvent]:
    transcriber = Transcriber(
        RunStarted(name="agent", kind="agent", attempt=1, host="here"),
        run_id=IDS["session"],
        path="agent",
        provider="claude-code",
        prices=lambda model, usage: NO_PRICE,
        new_id=IDS.__getitem__,
    )
    writes = [write for report in reports for write in transcriber.process_report(report)]
    return writes + transcriber.end(SessionEnded(status="completed", is_final=True), None)[0]


def calls(writes: list[PendingEvent]) -> list[tuple[str, str, str | None]]:
    """Where each call began or ended, and whose it was."""
    names = {run_id: name for name, run_id in IDS.items()}
    kinds = (CallStarted, CallCompleted)
    return [
        (names[one.run_id], one.path, one.child_run_id and names[one.child_run_id])
        for one in writes
        if isinstance(one.payload, kinds)
    ]


def test_one_whose_caller_ended_first_ends_in_its_own_log_alone():
    writes = written(OUTER, INNER, SubAgentEnded(agent="outer", status="completed"))
    assert calls(writes) == [
        ("session", "agent.reviewer-1", "outer"),
        ("outer", "reviewer.reader-1", "inner"),
        ("session", "agent.reviewer-1", "outer"),
    ]
    ends = {one.run_id: one.payload.status for one in writes if isinstance(one.payload, RunCompleted)}
    assert ends == {IDS["outer"]: "completed", IDS["inner"]: "failed"}


def test_one_that_begins_after_its_caller_ended_is_called_by_the_callers_caller():
    writes = written(OUTER, SubAgentEnded(agent="outer", status="completed"), INNER)
    assert calls(writes)[2:] == [("session", "agent.reader-2", "inner"), ("session", "agent.reader-2", "inner")]
    [begun] = [one for one in writes if one.run_id == IDS["inner"] and isinstance(one.payload, RunStarted)]
    assert begun.parent_run_id == IDS["session"]
