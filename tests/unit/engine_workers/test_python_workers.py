"""Workers and tools in Python."""
# ruff: noqa: N803 - inputs have names in capitals

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
import pytest

from shopfloor.engine.steps.tools import BUILTIN_TOOLS
from shopfloor.engine.workers import InputField, PythonTool, PythonWorker, accepted_arguments, load_object, tool, worker
from shopfloor.engine.workers.definition import BUILTIN_TOOL_NAMES, definition_hash
from shopfloor.errors import InvalidWorker, ToolFailed


class Place(msgspec.Struct):
    city: str
    zip: int | None = None


@tool(read_only=True)
def look_up(
    query: str, limit: Annotated[int, "how many"] = 5, kind: Literal["a", "b"] = "a", at: Place | None = None
) -> list[str]:
    """Looks something up.

    At length.
    """
    return [query, str(limit), kind, str(at)]


@tool
async def wait_for(seconds: float) -> float:
    return seconds


@worker
async def say_hello(
    run: Any, NAME: Annotated[str, "who"], TIMES: int = 1, LOUD: bool | None = None, *, TAGS: list[str]
) -> str:
    """Greets
    somebody."""
    return " ".join([f"Hello {NAME}"] * TIMES)


@worker(
    slug="other-one",
    description="Another.",
    input={"A": str, "B": InputField(type="number", default=2)},
    tools=[look_up],
)
async def other(run: Any, **values: Any) -> dict[str, Any]:
    return values


def test_a_function_with_the_decorator_is_a_worker():
    assert isinstance(say_hello, PythonWorker)
    definition = say_hello.definition
    assert (definition.slug, definition.description) == ("say-hello", "Greets somebody.")
    assert definition.input == {
        "NAME": InputField(description="who"),
        "TIMES": InputField(type="integer", default=1),
        "LOUD": InputField(type="boolean", optional=True),
        "TAGS": InputField(type="array"),
    }
    assert definition.function == f"{__name__}:say_hello"
    # Both are in one file; each has the hashes of the names that it uses.
    assert "say_hello" in definition.functions
    assert "say_hello" not in other.definition.functions
    assert definition_hash(definition) != definition_hash(other.definition)


def test_a_literal_keeps_its_choices():
    @worker
    async def paint(run: Any, COLOR: Literal["red", "blue"] = "red", COATS: Literal[1, 2] | None = None) -> None: ...

    assert paint.definition.input == {
        "COLOR": InputField(choices=["red", "blue"], default="red"),
        "COATS": InputField(type="integer", choices=[1, 2], optional=True),
    }


@pytest.mark.anyio
async def test_calling_a_worker_calls_the_function():
    assert await say_hello(None, "Ada", 2, TAGS=[]) == "Hello Ada Hello Ada"
    assert accepted_arguments(say_hello.function, {"NAME": "x", "OTHER": 1}) == {"NAME": "x"}
    assert accepted_arguments(other.function, {"A": "x", "OTHER": 1}) == {"A": "x", "OTHER": 1}


def test_the_arguments_of_the_decorator_override_the_function():
    definition = other.definition
    assert (definition.slug, definition.description) == ("other-one", "Another.")
    assert definition.input == {"A": InputField(), "B": InputField(type="number", default=2)}
    assert definition.tools == {"look-up": look_up.definition}


def test_a_function_that_cannot_be_a_worker_is_reported():
    def plain(run: Any) -> None: ...
    async def none() -> None: ...
    async def by_position(run: Any, name: str, /) -> None: ...
    async def unknown(run: Any, name: "Nobody") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    wrong: Any = (
        (plain, "is not `async def`"),
        (none, "takes no parameter"),
        (by_position, "by position"),
        (unknown, "cannot be resolved"),
    )
    for function, message in wrong:
        with pytest.raises(InvalidWorker, match=message):
            worker(function)
    with pytest.raises(InvalidWorker, match="is not a valid slug"):
        worker(slug="Not A Slug")(none)


def test_a_tools_schema_is_made_from_its_annotations():
    assert isinstance(look_up, PythonTool)
    definition = look_up.definition
    assert (look_up.name, definition.description, definition.read_only) == ("look-up", "Looks something up.", True)
    assert definition.handler == f"{__name__}:look_up"
    schema = definition.parameters
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["required"] == ["query"]
    assert schema["properties"]["limit"] == {"type": "integer", "description": "how many", "default": 5}
    check = jsonschema.Draft202012Validator(schema)
    assert check.is_valid({"query": "x", "kind": "b", "at": {"city": "Rome"}})
    assert not check.is_valid({"query": "x", "kind": "c"})
    assert not check.is_valid({"query": "x", "at": {"zip": 3}})
    assert not check.is_valid({"query": "x", "other": 1})


@pytest.mark.anyio
async def test_a_tool_is_called_as_a_function_or_with_arguments_of_a_model():
    assert look_up("x")[0] == "x"
    assert look_up.handle({"query": "y", "limit": 2})[:2] == ["y", "2"]
    assert await wait_for.handle({"seconds": 2.0}) == 2.0
    with pytest.raises(ToolFailed, match="cannot be called with these arguments: missing a required argument: 'query'"):
        look_up.handle({})


def test_a_parameter_must_have_a_type_that_json_can_represent():
    def odd(what: Callable[[], None]) -> None: ...

    with pytest.raises(InvalidWorker, match="has a parameter that JSON cannot represent"):
        tool(odd)


def test_an_object_is_loaded_by_its_name(tmp_path):
    assert load_object("inspect:getsource") is inspect.getsource
    assert load_object("json.decoder:JSONDecoder.decode").__name__ == "decode"
    (tmp_path / "own.py").write_text("def double(number):\n    return number * 2\n")
    assert load_object(f"{tmp_path}/own.py:double")(4) == 8


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json", "`json` is not `package.module:name`"),
        ("json:", "`json:` is not `package.module:name`"),
        ("no_such:thing", "there is no module `no_such`"),
        ("json.no_such:thing", "there is no module `json.no_such`"),
        ("json:lods", "`json` has no `lods`"),
        ("gone.py:f", "there is no file"),
    ],
)
def test_a_failure_to_load_is_reported(name, message):
    with pytest.raises(InvalidWorker) as caught:
        load_object(name)
    assert caught.value.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1 +\n", ":1` cannot be loaded: SyntaxError"),
        ("\nimport no_such_thing", ":2` cannot be loaded: ModuleNotFound"),
        ("raise SystemExit(3)", "SystemExit"),
    ],
)
def test_a_module_that_fails_is_reported_with_its_line(tmp_path, text, message):
    file = tmp_path / "broken.py"
    file.write_text(text)
    with pytest.raises(InvalidWorker) as caught:
        load_object(f"{file}:f")
    assert f"{file}" in caught.value.message
    assert message in caught.value.message


def test_the_built_in_tools_of_definitions_are_those_of_the_engine():
    assert set(BUILTIN_TOOLS) == BUILTIN_TOOL_NAMES
