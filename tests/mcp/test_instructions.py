"""The guide that a model gets, and how much of its context that takes."""

from __future__ import annotations

import json

import pytest
from mcp.types import Tool
from tests.mcp.installation import Installation

from shopfloor.limits import CHARS_PER_TOKEN
from shopfloor.mcp import server_instructions, skill_text
from shopfloor.mcp.limits import INSTRUCTIONS_CHARS, MCP_TOOLS_TOKENS
from shopfloor.mcp.protocol_server import describe_tools

WORKER = {"slug": "researcher", "description": "Researches a question.", "input_schema": {}}


def wire(tools: list[Tool]) -> str:
    return json.dumps([tool.model_dump(by_alias=True, mode="json", exclude_none=True) for tool in tools])


def test_all_tools_together_take_fewer_tokens_than_their_limit() -> None:
    assert len(wire(describe_tools())) / CHARS_PER_TOKEN < MCP_TOOLS_TOKENS


def test_every_tool_and_argument_has_a_type_and_every_tool_a_description() -> None:
    for tool in describe_tools():
        assert tool.description
        assert tool.input_schema["additionalProperties"] is False
        assert all("type" in field for field in tool.input_schema["properties"].values()), tool.name


@pytest.mark.req("REQ-WD-39")
def test_the_guide_says_when_to_dispatch_how_to_relay_and_how_to_present() -> None:
    text = server_instructions([WORKER])
    for words in (
        "Dispatch work that",
        "worker_status",
        "Relay the question to the user",
        "worker_answer",
        "worker_result",
        "decisions",
        "- researcher: Researches a question.",
    ):
        assert words in text
    assert {tool.name for tool in describe_tools()} >= {
        word.strip(".,;:()") for word in text.split() if word.startswith(("worker_", "run_"))
    }


@pytest.mark.req("REQ-WD-45")
def test_the_guide_sends_work_to_listed_workers_only() -> None:
    assert "Only the workers of worker_list accept work." in server_instructions([WORKER])


@pytest.mark.parametrize("count", [0, 1, 5, 1000])
def test_the_instructions_are_short_however_many_workers_there_are(count: int) -> None:
    workers = [{"slug": f"worker-{number}", "description": "does things " * 50} for number in range(count)]
    text = server_instructions(workers)
    assert len(text) <= INSTRUCTIONS_CHARS
    shown = text.count("\n- worker-")
    if shown < count:
        assert text.endswith(f"- and {count - shown} more: call worker_list")


def test_descriptions_stay_on_one_line() -> None:
    text = server_instructions([{"slug": "odd", "description": "one\ntwo\n\n- three"}])
    assert text.endswith("\n- odd: one two - three")


def test_the_skill_has_the_same_guide_and_a_head_that_claude_code_reads() -> None:
    skill = skill_text()
    assert skill.startswith("---\nname: shopfloor\ndescription: ")
    guide = server_instructions([]).split("\n\n")[1]
    assert guide in skill
    assert len(skill) / CHARS_PER_TOKEN < 600


@pytest.mark.req("REQ-WD-39")
def test_the_command_prints_the_instructions_with_and_without_a_server(installation: Installation) -> None:
    without = installation.shopfloor("prompt")
    assert (without.returncode, without.stderr) == (0, "")
    assert "\n- greet: Greets somebody by name.\n" in without.stdout
    installation.up()
    assert installation.shopfloor("prompt").stdout == without.stdout
