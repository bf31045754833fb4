"""The argument TASK of `run` and `dispatch`: the one text input of a worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.cli.test_run import events_of, only_path

ROUTE = """\
description: Needs two texts.
input:
  FROM: {type: string}
  TO: {type: string}
steps:
  Say: {block: command, command: "printf '%s'", output: SAID}
output: SAID
"""
Transcripts = Callable[[], list[Path]]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, env: dict[str, str]) -> Path:
    """A project with a plugin named `counter`, and a worker with two text inputs."""
    env["HOME"] = env["XDG_DATA_HOME"] = str(tmp_path / "home")
    env["SHOPFLOOR_SCRIPT_DELAY_MS"] = "0"
    folder = tmp_path / "project"
    (folder / "workers" / "route").mkdir(parents=True, mode=0o755)
    (folder / "workers" / "route" / "worker.yaml").write_text(ROUTE)
    return folder


@pytest.fixture
def counter(shopfloor: Cli, project: Path) -> None:
    done = shopfloor("plugins", "new", "counter", "--template", "word-count", cwd=project)
    assert done.returncode == 0, done.stderr


def input_of(transcripts: Transcripts) -> dict[str, Any]:
    """Return the inputs of the only run that have a value."""
    values = events_of(only_path(transcripts()))[0]["payload"]["input"]
    return {name: value for name, value in values.items() if value is not None}


@pytest.mark.usefixtures("counter")
def test_a_plugin_gets_the_task(shopfloor: Cli, project: Path, transcripts: Transcripts) -> None:
    done = shopfloor("run", "-q", "counter", "one two three", cwd=project)
    assert (done.returncode, done.stdout) == (0, "3 words\n"), done.stderr
    assert input_of(transcripts) == {"task": "one two three"}


@pytest.mark.usefixtures("counter")
def test_other_inputs_and_options_may_stand_before_the_task(
    shopfloor: Cli, project: Path, transcripts: Transcripts
) -> None:
    done = shopfloor("run", "counter", "-i", "description=short", "--quiet", "one two", cwd=project)
    assert (done.returncode, done.stdout) == (0, "2 words\n"), done.stderr
    assert input_of(transcripts) == {"task": "one two", "description": "short"}


@pytest.mark.usefixtures("counter")
def test_a_dash_reads_the_task_from_stdin(shopfloor: Cli, project: Path) -> None:
    done = shopfloor("run", "-q", "counter", "-", cwd=project, input="one two\nthree four\n")
    assert (done.returncode, done.stdout) == (0, "4 words\n"), done.stderr


@pytest.mark.usefixtures("counter")
def test_a_task_after_two_dashes_may_begin_with_a_dash(shopfloor: Cli, project: Path) -> None:
    done = shopfloor("run", "counter", "-q", "--", "--one two", cwd=project)
    assert (done.returncode, done.stdout) == (0, "2 words\n"), done.stderr


def test_a_worker_gets_the_task_as_its_only_text_input(shopfloor: Cli, transcripts: Transcripts) -> None:
    done = shopfloor("run", "-q", "hello", "Ada")
    assert done.stdout.startswith("Hello, Ada! "), done.stderr
    assert input_of(transcripts) == {"NAME": "Ada"}


@pytest.mark.usefixtures("counter")
def test_dispatch_takes_the_task_too(shopfloor: Cli, project: Path) -> None:
    done = shopfloor("dispatch", "counter", "one two three four", cwd=project)
    assert done.returncode == 0, done.stderr
    (listed,) = json.loads(shopfloor("list", "--json", cwd=project).stdout)["workers"]
    assert (listed["id"], listed["task"]) == (done.stdout.strip(), "one two three four")


@pytest.mark.usefixtures("counter")
@pytest.mark.parametrize("command", ["run", "dispatch"])
@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        (["counter", "a", "-i", "task=b"], "validation_error", "input task is set twice: by -i and by TASK", "remove"),
        (
            ["counter", "a", "--input-json", '{"task": "b"}'],
            "validation_error",
            "input task is set twice: by --input-json and by TASK",
            "remove",
        ),
        (["counter", " "], "usage", "the task is empty", "shopfloor run counter 'your task'"),
        (
            ["route", "tea"],
            "validation_error",
            "the worker `route` has no single text input for TASK",
            "use -i for its inputs: FROM (string, required), TO (string, required)",
        ),
        (
            ["repo-report", "tea"],
            "validation_error",
            "the worker `repo-report` has no single text input for TASK",
            "use -i for its inputs: FILES (array)",
        ),
        (["counter", "one", "two", "three"], "usage", "unrecognized arguments: two three", "in quotes"),
    ],
)
def test_a_task_that_fits_no_input_is_refused_before_anything_runs(
    shopfloor: Cli,
    project: Path,
    transcripts: Transcripts,
    command: str,
    words: list[str],
    code: str,
    message: str,
    hint: str,
) -> None:
    done = shopfloor(command, *words, cwd=project)
    assert done.stderr.startswith(f"error[{code}]: {message}\n")
    assert hint in done.stderr
    assert (done.returncode, done.stdout, transcripts()) == (2, "", [])


def test_an_unknown_worker_is_reported_before_its_task(shopfloor: Cli) -> None:
    done = shopfloor("run", "helo", "Ada")
    assert done.stderr.startswith("error[not_found_error]: there is no worker `helo`\n")
    assert "did you mean `hello`?" in done.stderr


def test_a_provider_takes_one_prompt(shopfloor: Cli) -> None:
    done = shopfloor("run", "--provider", "codex", "fix", "it")
    assert done.stderr.startswith("error[usage]: --provider takes one prompt, got also 'it'\n")
    assert done.returncode == 2
