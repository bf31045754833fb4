"""Validation of a run's input against the inputs of its worker."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shopfloor.engine.workers import Definition, InputField, input_schema, parse_input_arguments, validate_input
from shopfloor.errors import InvalidInput

DEFINITION = Definition(
    slug="mine",
    input={
        "TOPIC": InputField(description="what about"),
        "DEPTH": InputField(default="brief"),
        "COUNT": InputField(type="integer", optional=True),
        "RATE": InputField(type="number", optional=True),
        "FAST": InputField(type="boolean", optional=True),
        "TAGS": InputField(type="array", optional=True),
        "MORE": InputField(type="object", optional=True),
        "ANY": InputField(type="any", optional=True),
    },
)
UNSET_INPUTS = {"DEPTH": "brief", "COUNT": None, "RATE": None, "FAST": None, "TAGS": None, "MORE": None, "ANY": None}


def test_a_missing_input_has_its_default_or_none():
    assert validate_input(DEFINITION, {"TOPIC": "x"}) == {"TOPIC": "x", **UNSET_INPUTS}
    assert validate_input(DEFINITION, {"TOPIC": "x", "DEPTH": None})["DEPTH"] == "brief"


def test_an_integer_may_be_written_with_a_decimal_point():
    values = validate_input(DEFINITION, {"TOPIC": "x", "COUNT": 3.0, "RATE": 2})
    assert (values["COUNT"], type(values["COUNT"]), values["RATE"]) == (3, int, 2)


@pytest.mark.req("SDK-29")
def test_all_problems_of_an_input_are_reported_at_once():
    with pytest.raises(InvalidInput) as caught:
        validate_input(
            DEFINITION, {"COUNT": True, "RATE": "fast", "FAST": 1, "TAGS": {}, "MORE": [1], "DEPHT": "x", "DEPTH": 3}
        )
    assert caught.value.code == "validation_error"
    assert caught.value.message == (
        "invalid input for the worker `mine`: `TOPIC` is missing; it must be text (what about); `DEPTH` must be text, got 3; "
        "`COUNT` must be a whole number, got true; `RATE` must be a number, got 'fast'; "
        "`FAST` must be true or false, got 1; `TAGS` must be a list, got an object; "
        "`MORE` must be an object, got a list of 1; `DEPHT` is not an input of this worker; did you mean `DEPTH`?"
    )
    assert caught.value.hint == "run `shopfloor workers show mine` to see its inputs; -i NAME=VALUE sets one"


def test_the_schema_describes_the_inputs():
    schema = input_schema(DEFINITION)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["required"] == ["TOPIC"]
    assert schema["properties"]["TOPIC"] == {"type": "string", "description": "what about"}
    assert schema["properties"]["DEPTH"] == {"type": "string", "default": "brief"}
    assert schema["properties"]["ANY"] == {}


def test_an_input_with_choices_takes_nothing_else():
    definition = Definition(
        slug="painter",
        input={
            "COLOR": InputField(choices=["red", "blue"]),
            "COATS": InputField(type="any", optional=True, choices=[1, 2]),
        },
    )
    assert validate_input(definition, {"COLOR": "blue"}) == {"COLOR": "blue", "COATS": None}
    assert input_schema(definition)["properties"]["COLOR"] == {"type": "string", "enum": ["red", "blue"]}
    with pytest.raises(InvalidInput) as caught:
        # In Python True is equal to 1.
        validate_input(definition, {"COLOR": "pink", "COATS": True})
    assert (
        "`COLOR` must be one of 'red', 'blue', got 'pink'; `COATS` must be one of 1, 2, got true"
        in caught.value.message
    )


JSON = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.lists(st.integers())
    | st.dictionaries(st.text(), st.integers())
)


@given(st.dictionaries(st.sampled_from([*DEFINITION.input, "OTHER"]), JSON.filter(lambda value: value is not None)))
def test_an_input_is_valid_exactly_if_it_matches_the_schema(values: dict[str, Any]):
    fits = jsonschema.Draft202012Validator(input_schema(DEFINITION)).is_valid(values)
    try:
        validate_input(DEFINITION, values)
    except InvalidInput:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("TOPIC=a=b", "a=b"),
        ("TOPIC=", ""),
        ("TOPIC=@@ada", "@ada"),
        ("TOPIC=3", "3"),
        ("COUNT=3", 3),
        ("RATE=2.5", 2.5),
        ("RATE=2", 2),
        ("FAST=Yes", True),
        ("FAST=off", False),
        ('TAGS=["a"]', ["a"]),
        ('MORE={"a": 1}', {"a": 1}),
        ("ANY=3", 3),
        ("ANY=three", "three"),
        ("OTHER=x", "x"),
    ],
)
def test_an_argument_is_converted_to_the_type_of_its_input(word, value):
    assert parse_input_arguments(DEFINITION, [word]) == {word.partition("=")[0]: value}


def test_an_argument_may_name_a_file(tmp_path):
    (tmp_path / "topic.md").write_text("long\ntext", encoding="utf-8")
    (tmp_path / "tags.json").write_text("[1, 2]\n", encoding="utf-8")
    values = parse_input_arguments(DEFINITION, [f"TOPIC=@{tmp_path}/topic.md", f"TAGS=@{tmp_path}/tags.json"])
    assert values == {"TOPIC": "long\ntext", "TAGS": [1, 2]}


def test_all_invalid_arguments_are_reported(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff")
    words = ["TOPIC", "COUNT=three", "RATE=NaN", "FAST=maybe", "TAGS=a,b", "MORE=[1]", f"ANY=@{tmp_path}/no", "COUNT=4"]
    with pytest.raises(InvalidInput) as caught:
        parse_input_arguments(DEFINITION, [*words, f"DEPTH=@{tmp_path}/bytes"])
    assert caught.value.message == (
        "invalid input for the worker `mine`: `-i TOPIC` has no value: write -i TOPIC=VALUE; `COUNT` must be a whole number, got 'three'; "
        "`RATE` must be a number, got 'NaN'; `FAST` must be true or false, got 'maybe'; "
        "`TAGS` must be a list (as JSON), got 'a,b'; `MORE` must be an object, got a list of 1; "
        f"`ANY` cannot be read from {tmp_path}/no: No such file or directory; `COUNT` is given twice; "
        f"`DEPTH` cannot be read from {tmp_path}/bytes: not UTF-8 text"
    )


@given(st.lists(st.text()))
def test_any_arguments_are_parsed_or_reported(words: list[str]):
    try:
        parse_input_arguments(DEFINITION, [word.replace("=@", "=") for word in words])
    except InvalidInput as error:
        assert error.message  # noqa: PT017 - either is fine
