"""`rerun`, `reply` and `fork`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

TWO = """
description: Writes twice.
input: {WORD: {type: string}, SECRET: {type: string, optional: true}}
steps:
  First: {block: command, command: "echo first {{WORD}} >> out", output: ONE}
  Second: {block: command, command: "echo second {{WORD}} >> out"}
output: "{{WORD}}"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place" / "workers" / "two").mkdir(parents=True)
    (tmp_path / "place" / "workers" / "two" / "worker.yaml").write_text(TWO)
    return tmp_path / "place"


def newest(shopfloor: Cli) -> dict[str, object]:
    return json.loads(shopfloor("list", "--json", "--limit", "1").stdout)["workers"][0]


@pytest.mark.req("SF-53", "SF-55")
def test_a_run_is_repeated_and_forked_and_every_command_names_the_earlier_and_later_runs(
    shopfloor: Cli, place: Path
) -> None:
    first = shopfloor("run", "-q", "two", "-i", "WORD=a", cwd=place)
    assert first.returncode == 0, first.stderr
    run_id = str(newest(shopfloor)["id"])
    again = shopfloor("rerun", "last", "-i", "WORD=b", cwd=place)
    assert (again.returncode, again.stdout.strip()) == (0, "b"), again.stderr
    second = newest(shopfloor)
    assert second["based_on"] == {"run_id": run_id, "kind": "rerun", "seq": None}
    events = [json.loads(line) for line in shopfloor("show", "last", "--json").stdout.splitlines()]
    (ended,) = [event["seq"] for event in events if (event["type"], event["path"]) == ("step.completed", "first")]
    forked = shopfloor("fork", str(second["id"]), "--at", str(ended), cwd=place)
    assert (forked.returncode, forked.stdout.strip()) == (0, "b"), forked.stderr
    assert (place / "out").read_text().splitlines() == ["first a", "second a", "first b", "second b", "second b"]
    third = str(newest(shopfloor)["id"])
    for command in ("show", "status", "tree"):
        shown = shopfloor(command, str(second["id"])).stdout
        assert f"rerun of {run_id}" in shown, command
        assert f"fork {third[:8]}" in shown, command
    assert f"fork of {second['id']} at event {ended}" in shopfloor("show", third).stdout
    assert shopfloor("verify", "--all").returncode == 0


ASKS = """
tools: {measure: {description: Measures., parameters: {what: {type: string}}}}
steps:
  Measure: {block: tool-call, tool: measure, input: {what: fence}, output: SIZE}
  Report: {block: command, command: "echo {{SIZE}} >> out"}
output: SIZE
"""


@pytest.mark.req("SF-55")
def test_a_fork_after_an_answered_call_neither_waits_for_it_nor_executes_it_again(shopfloor: Cli, place: Path) -> None:
    (place / "workers" / "asks").mkdir()
    (place / "workers" / "asks" / "worker.yaml").write_text(ASKS)
    tool = ("--tool", "measure=echo called >> calls; echo two metres")
    assert shopfloor("run", "-q", "asks", *tool, cwd=place).returncode == 0
    events = [json.loads(line) for line in shopfloor("show", "last", "--json").stdout.splitlines()]
    (answered,) = [event["seq"] for event in events if event["type"] == "tool.result"]
    for words in ((), tool):
        forked = shopfloor("fork", "last", "--at", str(answered), *words, cwd=place)
        assert (forked.returncode, forked.stdout.strip()) == (0, "two metres"), forked.stderr
    assert (place / "calls").read_text() == "called\n"


def test_what_cannot_be_repeated_is_refused_with_what_to_do(shopfloor: Cli, place: Path) -> None:
    shopfloor("run", "-q", "--command", "echo it's", cwd=place)
    refused = shopfloor("rerun", "last", cwd=place)
    assert refused.returncode == 5
    assert """shopfloor run --command 'echo it'"'"'s'""" in refused.stderr
    shopfloor("run", "-q", "two", "-i", "WORD=a", cwd=place)
    elsewhere = shopfloor("rerun", "last", cwd=place.parent)
    assert (elsewhere.returncode, str(place / "workers" / "two") in elsewhere.stderr) == (4, True), elsewhere.stderr
    found = shopfloor("rerun", "last", "-q", "--workers", str(place / "workers"), cwd=place.parent)
    assert found.returncode == 0, found.stderr
    assert (place / "out").read_text().splitlines()[-1] == "second a", "it runs in the folder of the earlier run"


@pytest.mark.req("SF-53")
def test_another_worker_of_the_same_name_is_not_run_instead(shopfloor: Cli, place: Path) -> None:
    (place / "mine" / "hello").mkdir(parents=True)
    file = place / "mine" / "hello" / "worker.yaml"
    steps = 'steps: {One: {block: command, command: "echo mine", output: SAID}}'
    file.write_text(f"input: {{NAME: {{type: string, default: Ada}}}}\n{steps}\noutput: SAID\n")
    assert shopfloor("run", "-q", "--workers", "mine", "hello", cwd=place).returncode == 0
    refused = shopfloor("rerun", "last", cwd=place)
    assert refused.returncode == 5, refused.stdout
    assert f"had the worker `hello` of {file.parent}; the name now means that of " in refused.stderr
    assert "--workers names the folder of the first" in refused.stderr
    # A worker that was edited is run as it is now.
    file.write_text(file.read_text().replace("echo mine", "echo edited"))
    again = shopfloor("rerun", "last", "--workers", "mine", cwd=place)
    assert (again.returncode, again.stdout.strip()) == (0, "edited"), again.stderr


def test_a_masked_input_has_to_be_given_again(shopfloor: Cli, env: dict[str, str], place: Path) -> None:
    env["API_KEY"] = "s3cret-value-of-the-key"
    run = ("run", "-q", "two", "-i", "WORD=a", "-i", f"SECRET={env['API_KEY']}", "--mask-env", "API_KEY")
    assert shopfloor(*run, cwd=place).returncode == 0
    unmasked = shopfloor("rerun", "last", cwd=place)
    assert (unmasked.returncode, "--mask-env" in unmasked.stderr) == (5, True), unmasked.stderr
    masked = shopfloor("rerun", "last", "--mask-env", "API_KEY", cwd=place)
    assert (masked.returncode, "-i SECRET=VALUE" in masked.stderr) == (5, True), masked.stderr
    given = shopfloor("rerun", "last", "-q", "--mask-env", "API_KEY", "-i", "SECRET=other", cwd=place)
    assert given.returncode == 0, given.stderr
    assert shopfloor("fork", "last", "--at", "2", cwd=place).returncode == 5


def test_without_a_server_a_detached_rerun_is_queued(shopfloor: Cli, place: Path) -> None:
    shopfloor("run", "-q", "two", "-i", "WORD=a", cwd=place)
    queued = shopfloor("rerun", "last", "--detach", cwd=place)
    assert queued.returncode == 0, queued.stderr
    assert "no server is running" in queued.stderr
    assert (newest(shopfloor)["id"], newest(shopfloor)["status"]) == (queued.stdout.strip(), "queued")


@pytest.mark.req("SF-53")
def test_an_input_is_left_out_with_null_and_emptied_without_a_value(shopfloor: Cli, place: Path) -> None:
    folder = place / "workers" / "say"
    folder.mkdir()
    (folder / "worker.yaml").write_text(
        "input:\n  WORD: {type: string, default: hello}\n  TIMES: {type: integer, default: 2}\n  WHO: {type: string}\n"
        "steps:\n  Say: {block: command, command: 'echo [{{WORD}}] {{TIMES}} {{WHO}}', output: SAID}\noutput: SAID\n"
    )
    inputs = ("-i", "WORD=bye", "-i", "TIMES=7", "-i", "WHO=Ada")
    assert shopfloor("run", "-q", "say", *inputs, cwd=place).stdout == "[bye] 7 Ada\n"
    assert shopfloor("rerun", "-q", "last", "-i", "WORD=", cwd=place).stdout == "[] 7 Ada\n"
    left_out = ("--input-json", '{"WORD": null, "TIMES": null}')
    assert shopfloor("rerun", "-q", "last", *left_out, cwd=place).stdout == "[hello] 2 Ada\n"
    required = shopfloor("rerun", "last", "--input-json", '{"WHO": null}', cwd=place)
    assert (required.returncode, "`WHO` is missing" in required.stderr) == (2, True), required.stderr
    number = shopfloor("rerun", "last", "-i", "TIMES=", cwd=place)
    assert (number.returncode, "`TIMES` must be a whole number" in number.stderr) == (2, True), number.stderr
