"""The JSON Schema of a line, compared with the files and with the verifier."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.sample_events import CHILD_ID, GOLDEN_FILES, PARENT_ID, PAYLOADS, assistant_message, fields_of, tool_call

from shopfloor.log import PAYLOAD_TYPES, Verifier, event_schema

SCHEMA = Draft202012Validator(event_schema())
GOLDEN_LINES = [(path.name, raw) for path in GOLDEN_FILES for raw in path.read_bytes().splitlines()]


def fits(event: Any) -> bool:
    return SCHEMA.is_valid(event)


def test_the_schema_is_itself_valid_and_can_be_written_as_json() -> None:
    schema = event_schema()
    Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize(("name", "raw"), GOLDEN_LINES, ids=[f"{name}-{n}" for n, (name, _) in enumerate(GOLDEN_LINES)])
def test_every_line_of_the_golden_files_fits_the_schema(name: str, raw: bytes) -> None:
    errors = [error.message for error in SCHEMA.iter_errors(json.loads(raw))]
    assert (name, errors) == (name, [])


@pytest.mark.parametrize("name", PAYLOAD_TYPES)
def test_every_event_with_every_field_fits_the_schema(name: str) -> None:
    errors = [error.message for error in SCHEMA.iter_errors(fields_of(PAYLOADS[name], parent_run_id=PARENT_ID))]
    assert errors == []


def test_fields_of_a_later_version_fit_the_schema() -> None:
    event = fields_of(assistant_message("x"))
    event["later"] = 1
    event["payload"]["later"] = {"a": 1}
    assert fits(event)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: path.name)
def test_schema_and_verifier_agree_that_the_golden_files_are_sound(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    verifier = Verifier()
    assert [(fits(json.loads(raw)), verifier.line(raw)) for raw in lines] == [(True, [])] * len(lines)


ENVELOPE = ["seq", "run_id", "type", "path", "iteration", "timestamp", "payload"]
TEXT = {"type": "text", "fidelity": "router", "text": "x"}
BROKEN: dict[str, Any] = {
    "an array": [],
    "null": None,
    **{f"no {name}": {k: v for k, v in fields_of(assistant_message("x")).items() if k != name} for name in ENVELOPE},
    **{f"{name} is null": fields_of(assistant_message("x")) | {name: None} for name in ENVELOPE},
    "seq 0": fields_of(assistant_message("x"), 0),
    "seq as text": fields_of(assistant_message("x")) | {"seq": "1"},
    "a run id of another kind": fields_of(assistant_message("x")) | {"run_id": "run-1"},
    "an empty parent": fields_of(assistant_message("x")) | {"parent_run_id": ""},
    "a null parent": fields_of(assistant_message("x")) | {"parent_run_id": None},
    "a parent that is no id": fields_of(assistant_message("x")) | {"parent_run_id": "run-1"},
    "a child that is no id": fields_of(PAYLOADS["step.call_workflow.started"]) | {"child_run_id": "run-1"},
    "an unknown type": fields_of(assistant_message("x")) | {"type": "message.system"},
    "a payload of another type": fields_of(assistant_message("x")) | {"type": "tool.call"},
    "a negative iteration": fields_of(assistant_message("x")) | {"iteration": -1},
    "a timestamp without milliseconds": fields_of(assistant_message("x")) | {"timestamp": "2026-11-15T10:30:00Z"},
    "a timestamp with an offset": fields_of(assistant_message("x")) | {"timestamp": "2026-11-15T10:30:00.000+01:00"},
    "an unknown block": fields_of(assistant_message("x"))
    | {"payload": {"role": "assistant", "blocks": [{"type": "image"}]}},
    "a block without fidelity": fields_of(assistant_message("x"))
    | {"payload": {"role": "assistant", "blocks": [{"type": "text", "text": "x"}]}},
    "an unknown fidelity": fields_of(assistant_message("x"))
    | {"payload": {"role": "assistant", "blocks": [TEXT | {"fidelity": "guessed"}]}},
    "another role": fields_of(assistant_message("x")) | {"payload": {"role": "user", "blocks": [TEXT]}},
    "a tool without its call": fields_of(tool_call(1)) | {"payload": {"name": "t", "fidelity": "router"}},
    "an unknown status": fields_of(PAYLOADS["run.completed"])
    | {"payload": {"name": "x", "kind": "y", "status": "done"}},
    "a call without its child": {
        k: v for k, v in fields_of(PAYLOADS["step.call_workflow.started"]).items() if k != "child_run_id"
    },
}


@pytest.mark.parametrize("event", BROKEN.values(), ids=BROKEN)
def test_a_broken_line_does_not_fit_the_schema_and_the_verifier_agrees(event: Any) -> None:
    assert not fits(event)
    assert Verifier().line(json.dumps(event).encode() + b"\n") != []


ONE_LINE = {
    "a child on a message": fields_of(assistant_message("x")) | {"child_run_id": CHILD_ID},
    "a path on run.started": fields_of(PAYLOADS["run.started"]) | {"path": "build"},
    "a step without its path": fields_of(PAYLOADS["step.started"]) | {"path": ""},
}


@pytest.mark.parametrize("event", ONE_LINE.values(), ids=ONE_LINE)
def test_a_rule_violation_in_a_single_line_does_not_fit_the_schema(event: Any) -> None:
    assert {broken.rule for broken in Verifier().line(json.dumps(event).encode() + b"\n")} & {"child-link", "path"}
    assert not fits(event)
