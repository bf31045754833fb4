"""Sub-agents that start and end in an unexpected order: every log stays valid."""

from shopfloor.engine.agents.transcriber import NO_PRICE, PendingEvent, Transcriber
from shopfloor.log import CallCompleted, CallStarted, RunCompleted, RunStarted, new_run_id
from shopfloor.ports import AgentReport, SessionEnded, SubAgentEnded, SubAgentStarted

IDS = {name: new_run_id() for name in ("session", "outer", "inner")}
OUTER = SubAgentStarted(agent="outer", name="reviewer")
INNER = SubAgentStarted(agent="inner", name="reader", parent="outer")


def events_of(*reports: AgentReport) -> list[PendingEvent]:
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
    """Return the run, the path and the child of each started or completed call."""
    names = {run_id: name for name, run_id in IDS.items()}
    kinds = (CallStarted, CallCompleted)
    return [
        (names[event.run_id], event.path, event.child_run_id and names[event.child_run_id])
        for event in writes
        if isinstance(event.payload, kinds)
    ]


def test_a_sub_agent_whose_caller_ended_first_ends_only_in_its_own_log():
    writes = events_of(OUTER, INNER, SubAgentEnded(agent="outer", status="completed"))
    assert calls(writes) == [
        ("session", "agent.reviewer-1", "outer"),
        ("outer", "reviewer.reader-1", "inner"),
        ("session", "agent.reviewer-1", "outer"),
    ]
    ends = {event.run_id: event.payload.status for event in writes if isinstance(event.payload, RunCompleted)}
    assert ends == {IDS["outer"]: "completed", IDS["inner"]: "failed"}


def test_a_sub_agent_that_starts_after_its_caller_ended_is_called_by_the_callers_caller():
    writes = events_of(OUTER, SubAgentEnded(agent="outer", status="completed"), INNER)
    assert calls(writes)[2:] == [("session", "agent.reader-2", "inner"), ("session", "agent.reader-2", "inner")]
    [started] = [event for event in writes if event.run_id == IDS["inner"] and isinstance(event.payload, RunStarted)]
    assert started.parent_run_id == IDS["session"]
