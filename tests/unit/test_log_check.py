"""The checks of a single event before it is written."""

from typing import Any

import msgspec
import pytest
from tests.sample_events import BLOCKS, CHILD_ID, PAYLOADS, location_of

from shopfloor.errors import InvalidEvent, InvalidRunId
from shopfloor.log import PAYLOAD_TYPES, AssistantMessage, Payload, UnknownBlock, UnknownPayload, check

CALLS = ["step.call_workflow.started", "step.call_workflow.completed"]
OTHERS = [name for name in PAYLOAD_TYPES if name not in CALLS]
STEPS = [name for name in PAYLOAD_TYPES if name.startswith("step.")]
RUNS = ["run.started", "run.completed"]
MESSAGES = ["message.user", "message.assistant"]
TOOLS = ["tool.call", "tool.result"]


def passes(payload: Any, **changes: Any) -> bool:
    position: dict[str, Any] = {"path": "build", "iteration": 0, "child_run_id": None} | changes
    check(payload, **position)
    return True


def changed(name: str, **fields: Any) -> Payload:
    return msgspec.structs.replace(PAYLOADS[name], **fields)


@pytest.mark.parametrize("name", PAYLOAD_TYPES)
@pytest.mark.parametrize("iteration", [0, 1, 10_000])
def test_each_of_the_ten_kinds_passes(name: str, iteration: int) -> None:
    assert passes(PAYLOADS[name], iteration=iteration, **location_of(PAYLOADS[name]))


@pytest.mark.req("TR-9")
@pytest.mark.parametrize("stranger", [UnknownPayload({}), {"name": "x"}, None, BLOCKS["text"]])
def test_nothing_but_the_ten_kinds_of_event_can_be_written(stranger: Any) -> None:
    with pytest.raises(InvalidEvent, match="is not the payload of an event"):
        passes(stranger)


@pytest.mark.req("TR-8")
@pytest.mark.parametrize("name", RUNS)
def test_an_event_of_the_run_has_no_path(name: str) -> None:
    with pytest.raises(InvalidEvent, match="at run level, where the path is empty, not 'build'"):
        passes(PAYLOADS[name])


@pytest.mark.req("TR-8")
@pytest.mark.parametrize("name", STEPS)
def test_an_event_of_a_step_needs_its_path(name: str) -> None:
    with pytest.raises(InvalidEvent, match="needs the path of its step"):
        passes(PAYLOADS[name], path="", child_run_id=CHILD_ID if name in CALLS else None)


@pytest.mark.parametrize("number", [0, -1])
@pytest.mark.parametrize("name", STEPS)
def test_a_try_counts_from_one(name: str, number: int) -> None:
    with pytest.raises(InvalidEvent, match=f"try is {number}; it counts from 1"):
        passes(changed(name, try_=number), child_run_id=CHILD_ID if name in CALLS else None)


@pytest.mark.parametrize("name", PAYLOAD_TYPES)
def test_an_iteration_counts_from_zero(name: str) -> None:
    with pytest.raises(InvalidEvent, match="iteration is -1; it counts from 0"):
        passes(PAYLOADS[name], iteration=-1, **location_of(PAYLOADS[name]))


@pytest.mark.parametrize("number", [0, -1])
def test_an_attempt_counts_from_one(number: int) -> None:
    with pytest.raises(InvalidEvent):
        passes(changed("run.started", attempt=number), path="")


@pytest.mark.req("TR-13")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_another_worker_needs_the_id_of_the_sub_run(name: str) -> None:
    with pytest.raises(InvalidEvent, match="needs the child_run_id of its sub-run"):
        passes(PAYLOADS[name])


@pytest.mark.parametrize("name", CALLS)
def test_the_id_of_a_sub_run_is_a_run_id(name: str) -> None:
    with pytest.raises(InvalidRunId):
        passes(PAYLOADS[name], child_run_id="../x")


@pytest.mark.parametrize("name", OTHERS)
def test_no_other_event_has_the_id_of_a_sub_run(name: str) -> None:
    with pytest.raises(InvalidEvent, match=r"belongs to step\.call_workflow events, and only to them"):
        passes(PAYLOADS[name], **location_of(PAYLOADS[name]) | {"child_run_id": CHILD_ID})


@pytest.mark.parametrize("status", ["done", "", "running"])
def test_an_outcome_is_completed_failed_or_cancelled(status: str) -> None:
    with pytest.raises(InvalidEvent, match="is not an outcome: cancelled, completed, failed"):
        passes(changed("run.completed", status=status), path="")


@pytest.mark.req("TR-18")
@pytest.mark.parametrize("name", MESSAGES)
@pytest.mark.parametrize("block", [UnknownBlock("image", {}), {"type": "text"}, "text", None])
def test_nothing_but_the_six_kinds_of_block_can_be_written(name: str, block: Any) -> None:
    with pytest.raises(InvalidEvent, match="is not a block of a message"):
        passes(changed(name, blocks=[BLOCKS["text"], block]))


@pytest.mark.req("TR-24")
@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("name", MESSAGES)
def test_the_fidelity_of_a_block_is_one_of_two_words(name: str, kind: str) -> None:
    block = msgspec.structs.replace(BLOCKS[kind], fidelity="guessed")
    with pytest.raises(InvalidEvent, match="fidelity must be `router` or `agent_emitted`, got 'guessed'"):
        passes(changed(name, blocks=[block]))


@pytest.mark.parametrize("name", TOOLS)
def test_the_fidelity_of_a_tool_event_is_one_of_two_words(name: str) -> None:
    with pytest.raises(InvalidEvent, match="fidelity must be `router` or `agent_emitted`, got 'guessed'"):
        passes(changed(name, fidelity="guessed"))


def test_a_message_may_have_no_blocks() -> None:
    assert passes(AssistantMessage(blocks=[]))
