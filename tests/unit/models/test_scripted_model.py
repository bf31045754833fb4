"""The provider `script`: its replies, their timing, and the validation of scripts."""

from __future__ import annotations

import json
import time
from pathlib import Path

import anyio
import pytest
from tests.model_server.model_client import assistant_message, user_message

from shopfloor.adapters.models import ModelRouter
from shopfloor.errors import RateLimited, UnknownModel
from shopfloor.log import TextBlock, ToolResultBlock, ToolUseBlock
from shopfloor.ports import ModelRequest, Reply, ReplyDelta, ThreadMessage, ToolSpec

SEARCH = ToolSpec("web-search", "Searches.", {"type": "object", "properties": {"query": {"type": "string"}}})
FAST = {"SHOPFLOOR_SCRIPT_DELAY_MS": "0"}


async def collect(models: ModelRouter, request: ModelRequest) -> tuple[list[ReplyDelta], Reply]:
    pieces = [piece async for piece in models.reply(request)]
    assert isinstance(pieces[-1], Reply)
    return [piece for piece in pieces if isinstance(piece, ReplyDelta)], pieces[-1]


def ask(models: ModelRouter, request: ModelRequest) -> Reply:
    return anyio.run(collect, models, request)[1]


def text_of(reply: Reply) -> str:
    return "".join(block.text for block in reply.blocks if isinstance(block, TextBlock))


@pytest.mark.parametrize(
    ("prompt", "greeting"),
    [
        ("Say hello to Ada.", "Hello, Ada!"),
        ("Greet Ada Lovelace, please", "Hello, Ada Lovelace!"),
        ("Name: Grace", "Hello, Grace!"),
        ("My name is Grace Hopper.", "Hello, Grace Hopper!"),
        ("42", "Hello, you!"),
    ],
)
def test_hello_greets_by_name(prompt: str, greeting: str) -> None:
    reply = ask(ModelRouter(env=FAST), ModelRequest(model="script/hello", messages=[user_message(prompt)]))
    assert text_of(reply).startswith(greeting)


@pytest.mark.parametrize("name", ["hello", "research", "summary", "report"])
def test_every_bundled_script_identifies_itself(name: str) -> None:
    models = ModelRouter(env=FAST)
    models.check(f"script/{name}")
    reply = ask(models, ModelRequest(model=f"script/{name}", messages=[user_message("Topic: welding")]))
    assert text_of(reply).endswith("(This is a script; no model was asked.)")
    assert (reply.model, reply.cost) == (f"script/{name}", None)


def test_research_searches_first_and_then_writes_from_what_it_found() -> None:
    models = ModelRouter(env=FAST)
    question = user_message("Research AI safety best practices. Be thorough.")
    first = ask(models, ModelRequest(model="script/research", messages=[question], tools=[SEARCH]))
    call = first.blocks[-1]
    assert isinstance(call, ToolUseBlock)
    assert (call.tool_name, call.tool_input) == ("web-search", {"query": "AI safety best practices"})
    assert first.stop_reason == "tool_use"
    found = ToolResultBlock(tool_id=call.tool_id, tool_content={"title": "Safety, a primer"}, fidelity="router")
    thread = [question, assistant_message(*first.blocks), ThreadMessage(role="user", blocks=[found])]
    second = ask(models, ModelRequest(model="script/research", messages=thread, tools=[SEARCH]))
    assert "Safety, a primer" in text_of(second)
    assert "AI safety best practices" in text_of(second)


def test_echo_repeats_the_last_message() -> None:
    reply = ask(
        ModelRouter(env=FAST),
        ModelRequest(model="script/echo", messages=[user_message("One"), user_message("Two  and\nmore")]),
    )
    assert text_of(reply) == "Two  and\nmore"


def test_the_same_question_has_the_same_answer() -> None:
    request = ModelRequest(model="script/report", messages=[user_message("A report about welding.")])
    first, second = (anyio.run(collect, ModelRouter(env=FAST), request) for _ in range(2))
    assert first == second


def test_words_are_delayed(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text("delay_ms: 30\nturns: [{text: one two three four five}]")
    started_at = time.monotonic()
    deltas, _ = anyio.run(
        collect, ModelRouter([tmp_path], env={}), ModelRequest(model="script/slow", messages=[user_message("x")])
    )
    assert [delta.text for delta in deltas] == ["one ", "two ", "three ", "four ", "five"]
    assert time.monotonic() - started_at >= 0.15


def test_a_turn_may_fail_a_number_of_times_and_then_succeed(tmp_path: Path) -> None:
    (tmp_path / "flaky.yaml").write_text(
        "turns: [{text: fine, error: {code: rate_limit_error, retry_after: 0.25, times: 2}}]"
    )
    models = ModelRouter([tmp_path], env=FAST)
    request = ModelRequest(model="script/flaky", messages=[user_message("x")])
    for _ in range(2):
        with pytest.raises(RateLimited) as raised:
            ask(models, request)
        assert raised.value.retry_after == 0.25
    assert text_of(ask(models, request)) == "fine"


@pytest.mark.req("SDK-48")
@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["1: the document is empty"]),
        ("turns: []", ["1: a script needs `turns`: a list of at least one"]),
        ("- a", ["1: a script is a mapping with `turns`"]),
        ("turns: [\n", ["2: not valid YAML"]),
        ("turns:\n  - text: a\n    text: b\n", ["3: duplicate key `text`"]),
        ("trns: 1\nturns:\n  - text: a\n", ["1: Object contains unknown field `trns`; known fields are `captures`, "]),
        (
            "turns:\n  - txt: a\n  - tool_calls: [{input: {}}]\n  - delay_ms: -1\n  - usage:\n      inptu: 3\n",
            [
                "2: Object contains unknown field `txt`; known fields are `when`, `text`, ",
                "3: Object missing required field `name`",
                "4: Expected `float` >= 0.0",
                "6: Object contains unknown field `inptu`; known fields are `input`, `output`, ",
            ],
        ),
        ("turns:\n  - text: a\n    error: {code: usage}\n", ["3: there is no provider error `usage`; "]),
        ("turns:\n  - text: a\n    when: '('\n", ["3: `when` is not a regular expression: "]),
        ("turns: [{text: a}]\ncaptures:\n  A: {find: 'a'}\n", ["3: `find` is not a regular expression with a group"]),
    ],
)
def test_problems_of_a_script_have_file_and_line(tmp_path: Path, text: str, problems: list[str]) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(UnknownModel) as by_name:
        ModelRouter([tmp_path]).check("script/bad")
    with pytest.raises(UnknownModel) as by_path:
        ModelRouter().check(f"script/{tmp_path}/bad.yaml")
    assert by_name.value.message == by_path.value.message
    messages = by_path.value.message.split(f"{tmp_path}/bad.yaml:")[1:]
    assert len(messages) == len(problems)
    assert all(message.startswith(problem) for message, problem in zip(messages, problems, strict=True)), messages


@pytest.mark.req("SDK-48")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "turns: [{text: hi}]"),
        ("a.yml", "turns:\n- text: hi\n"),
        ("a.json", '{\n\t"turns": [{"text": "hi"}]\n}'),
    ],
)
def test_a_script_may_be_any_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert (
        text_of(
            ask(ModelRouter(env=FAST), ModelRequest(model=f"script/{tmp_path}/{name}", messages=[user_message("x")]))
        )
        == "hi"
    )


def test_an_answer_with_a_schema_is_the_one_in_the_script(tmp_path: Path) -> None:
    (tmp_path / "city.yaml").write_text(
        "captures: {CITY: {find: 'in (\\w+)'}}\nturns: [{text: unused, answer: {city: '{{CITY}}', tags: [a, '{{CITY}}']}}]"
    )
    request = ModelRequest(model="script/city", messages=[user_message("I live in Essen")], schema={"type": "object"})
    reply = ask(ModelRouter([tmp_path], env=FAST), request)
    assert json.loads(text_of(reply)) == {"city": "Essen", "tags": ["a", "Essen"]}


@pytest.mark.parametrize(
    "body", ["turns: []", "turns: [{txt: typo}]", "turns: [", "{captures: {A: {find: '('}}, turns: [{}]}"]
)
def test_an_unreadable_script_is_reported_by_the_check(tmp_path: Path, body: str) -> None:
    (tmp_path / "broken.yaml").write_text(body)
    with pytest.raises(UnknownModel, match="broken"):
        ModelRouter([tmp_path]).check("script/broken")


def test_a_users_script_takes_precedence_over_a_bundled_one(tmp_path: Path) -> None:
    (tmp_path / "hello.yaml").write_text("turns: [{text: Moin}]")
    models = ModelRouter([tmp_path], env=FAST)
    assert text_of(ask(models, ModelRequest(model="script/hello", messages=[user_message("x")]))) == "Moin"
