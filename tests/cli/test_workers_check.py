"""`shopfloor workers check` finds what a run would find: a table of broken workers, each checked and run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import SHOPFLOOR

import shopfloor.testing
from shopfloor.errors import ShopfloorError
from shopfloor.testing import SyncEngine

CODE = """\
async def send(run, to, subject="none"):
    return to


def blocks(run):
    return 1


def nothing():
    return 1
"""
BAD_SCRIPT = """\
turns:
  - text: hi {{NOPE}}
    tool_calls: [{nam: x}, 5]
  - eror: 1
  - error: {code: usage}
  - when: '('
    wait_ms: -1
  - {}
"""
SCRIPT_PROBLEMS = [
    "`{{NOPE}}` is not a variable of the script: `last_user`, `system`, `tool_results`",
    "Expected `object`, got `int`",
    "Object contains unknown field `nam`; known fields are `name`, `input`",
    "Object missing required field `name`",
    "Object contains unknown field `eror`",
    "there is no provider error `usage`",
    "`when` is not a regular expression",
    "Expected `float` >= 0.0",
    "a turn is empty",
]
THREAD = "  Begin: {block: start-thread, model: script/hello}\n"
BROKEN = {
    # slug: (worker.yaml, the line of the problem, the reason)
    "agent-provider": ("steps:\n  A: {block: agent, provider: codx, text: hi}\n", 2, "there is no provider 'codx'"),
    "agent-of-a-model": ("steps:\n  A: {block: agent, provider: openai, text: hi}\n", 2, "there is no provider"),
    "agent-tools": (
        "steps:\n  A:\n    block: agent\n    provider: codex\n    text: hi\n    tools: [Bash]\n",
        6,
        "codex does not support a list of allowed tools",
    ),
    "agent-turns": (
        "steps:\n  A:\n    block: agent\n    provider: copilot\n    text: hi\n    maxTurns: 3\n",
        6,
        "copilot does not support a limit on turns",
    ),
    "agent-sandbox": (
        "steps:\n  A:\n    block: agent\n    provider: gemini\n    sandbox: true\n    text: hi\n",
        5,
        "gemini has no sandbox",
    ),
    "agent-budget": (
        "steps:\n  A:\n    block: agent\n    provider: codex\n    maxBudget: 1\n    text: hi\n",
        5,
        "a budget for codex needs a model with a known price",
    ),
    "agent-own-tools": (
        "tools: {t: {handler: 'code.py:blocks'}}\nsteps:\n  A:\n    block: agent\n    provider: codex\n    text: hi\n    ownTools: [t]\n",
        7,
        "codex cannot call tools of a worker",
    ),
    "agent-asks": (
        "steps:\n  A:\n    block: agent\n    provider: claude-sdk\n    text: hi\n    ownTools: [ask]\n",
        6,
        "there is no tool `ask`",
    ),
    "agent-read-only": (
        "steps:\n  A:\n    block: agent\n    provider: codex\n    text: hi\n    readOnly: maybe\n",
        6,
        "`readOnly` must be true or false",
    ),
    "agent-turns-text": (
        "input: {N: {default: '3'}}\nsteps:\n  A: {block: agent, provider: codex, text: hi, maxTurns: 'a {{N}}'}\n",
        3,
        "`maxTurns` must be a whole number",
    ),
    "model-provider": (
        "steps:\n  A: {block: start-thread, model: nobody/x}\n  B: {block: next-message}\n",
        2,
        "no provider is named 'nobody'",
    ),
    "script-name": (
        "steps:\n  A: {block: start-thread, model: script/nobody}\n  B: {block: next-message}\n",
        2,
        "there is no script 'nobody'",
    ),
    "no-branches": ("steps:\n  A:\n    block: parallel\n    branches: {}\n", 4, "`branches` needs at least one"),
    "empty-branch": ("steps:\n  A:\n    block: parallel\n    branches: {a: {}}\n", 4, "`a` has no steps"),
    "empty-loop": (
        "steps:\n  A: {block: for-each, each: [1], as: X, steps: {}}\n",
        2,
        "`steps` has no steps: it needs at least one",
    ),
    "output-of-a-loop": (
        "steps:\n  A: {block: while, while: {value: 1, is: 2}, steps: {B: {block: command, command: x}}}\noutput: ROUND\n",
        3,
        "`output` names `ROUND`, which is never set; there are none",
    ),
    "script-file": (
        "steps:\n  A: {block: start-thread, model: script/none.yaml}\n  B: {block: next-message}\n",
        2,
        "script-file/none.yaml",
    ),
    "filter": (
        "input: {NAME: {default: x}}\nsteps:\n  A: {block: command, command: 'echo {{NAME | upper}}'}\n",
        3,
        "filters such as `upper` are not supported",
    ),
    "expression": (
        "input: {NAME: {default: x}}\nsteps:\n  A: {block: command, command: 'echo {{NAME[0]}}'}\n",
        3,
        "`{{NAME[0]}}` is an expression, not the name of a value",
    ),
    "step-field": (
        "steps:\n  A:\n    block: command\n    command: ls\n    timout: 3\n",
        5,
        "a `command` step has no field `timout`; did you mean `timeout`? There are `description`,",
    ),
    "kind-field": (
        "kinds: {send: 'code.py:send'}\nsteps:\n  A:\n    block: send\n    to: ada\n    subjet: hi\n",
        6,
        "a `send` step has no field `subjet`; its fields are `to`, `subject`",
    ),
    "kind-missing": (
        "kinds: {send: 'code.py:send'}\nsteps:\n  A:\n    block: send\n",
        3,
        "a `send` step needs `to`",
    ),
    "kind-blocks": (
        "kinds: {blocks: 'code.py:blocks'}\nsteps:\n  A: {block: blocks}\n",
        1,
        "so it must be an `async def`",
    ),
    "handler-module": (
        "tools: {t: {handler: 'no_such_module:f'}}\nsteps:\n  A: {block: tool-call, tool: t}\n",
        1,
        "there is no module `no_such_module`",
    ),
    "handler-takes": (
        "tools: {t: {handler: 'code.py:nothing'}}\nsteps:\n  A: {block: tool-call, tool: t}\n",
        1,
        "takes the arguments as one dict",
    ),
    "schema": (
        f"steps:\n{THREAD}  B:\n    block: next-message\n    schema: {{type: strin}}\n",
        5,
        "`schema` is not a valid JSON Schema: 'strin' is not valid",
    ),
    "each-text": (
        "input: {X: {default: a}}\nsteps:\n  A: {block: for-each, each: 'a {{X}}', steps: {B: {block: command, command: ls}}}\n",
        3,
        "`each` must be a list",
    ),
    "sub-run": ("steps:\n  A: {block: run-worker, worker: helo}\n", 2, "there is no worker `helo`"),
    "sub-run-missing": ("steps:\n  A: {block: run-worker, worker: hello}\n", 2, "`NAME` is missing; it must be text"),
    "sub-run-unknown": (
        "steps:\n  A: {block: run-worker, worker: hello, input: {NAME: a, NAMES: b}}\n",
        2,
        "`NAMES` is not an input of this worker",
    ),
    "sub-run-type": (
        "steps:\n  A: {block: run-worker, worker: hello, input: {NAME: 3}}\n",
        2,
        "`NAME` must be text, got 3",
    ),
    "sub-run-broken": ("steps:\n  A: {block: run-worker, worker: step-field}\n", 2, "has problems itself"),
    "undefined": ("steps:\n  A: {block: command, command: 'echo {{X}}'}\n", 2, "`{{X}}` is not defined"),
    "thread": ("steps:\n  A: {block: next-message}\n", 2, "the thread `main` is not started"),
    "prompt": (f"steps:\n{THREAD}  B: {{block: add-message, prompt: none}}\n", 3, "there is no prompt `none`"),
    "tool": ("steps:\n  A: {block: tool-call, tool: none}\n", 2, "there is no tool `none`"),
    "no-value-in-program-text": (
        "input: {X: {default: a}}\nsteps:\n  A: {block: command, command: 'sh -c \"ls {{X}}\"'}\n",
        3,
        "is in the program text of `sh`",
    ),
}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("here")
    for slug, (text, _, _) in BROKEN.items():
        folder = home / "workers" / slug
        folder.mkdir(parents=True)
        (folder / "worker.yaml").write_text(text)
        (folder / "code.py").write_text(CODE)
        (folder / "bad.yaml").write_text(BAD_SCRIPT)
    return home


@pytest.fixture(scope="module")
def checked(here: Path) -> list[str]:
    """The lines that one call of the command prints for all of them."""
    env = {**os.environ, "SHOPFLOOR_STORAGE": str(here / "storage")}
    done = subprocess.run([SHOPFLOOR, "workers", "check"], cwd=here, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def engine(here: Path) -> Iterator[SyncEngine]:
    with shopfloor.testing.engine(workers=[here / "workers"]) as made:
        yield made


def refusal(engine: SyncEngine, slug: str) -> str | None:
    """Why a run does not begin, or does not end well; None where it does."""
    try:
        run = engine.run(slug)
    except ShopfloorError as error:
        return error.message
    return run.error.message if run.error else None


@pytest.mark.req("SDK-49")
@pytest.mark.parametrize("slug", BROKEN)
def test_check_reports_everything_that_a_run_refuses(checked: list[str], engine: SyncEngine, slug: str) -> None:
    _, line, reason = BROKEN[slug]
    found = [one for one in checked if one.startswith(f"workers/{slug}/")]
    assert len(found) == 1, found
    assert found[0].startswith(f"workers/{slug}/worker.yaml:{line}: ")
    assert reason in found[0]
    assert refusal(engine, slug) is not None


@pytest.mark.req("SDK-49")
def test_all_problems_of_a_provider_and_of_a_script_are_reported_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "workers" / "many"
    folder.mkdir(parents=True)
    (folder / "worker.yaml").write_text(
        "steps:\n  A:\n    block: agent\n    provider: codex\n    text: hi\n    maxTurns: 3\n    sandbox: true\n"
        "    tools: [Bash]\n  B: {block: start-thread, model: script/bad.yaml}\n"
    )
    (folder / "bad.yaml").write_text(BAD_SCRIPT)
    done = subprocess.run([SHOPFLOOR, "workers", "check", "many"], cwd=tmp_path, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert [line.split(":")[0].split("/")[-1] for line in lines] == ["bad.yaml"] * 9 + ["worker.yaml"] * 3
    assert [int(line.split(":")[1]) for line in lines] == [2, 3, 3, 3, 4, 5, 6, 7, 8, 6, 7, 8]
    for line, reason in enumerate(SCRIPT_PROBLEMS):
        assert reason in lines[line]


def test_braces_of_other_tools_are_text(tmp_path: Path) -> None:
    folder = tmp_path / "workers" / "fine"
    folder.mkdir(parents=True)
    (folder / "worker.yaml").write_text(
        "input: {NAME: }\nsteps:\n  A: {block: command, command: \"echo '{{.Names}} {{json .}}' {{NAME}}\"}\n"
    )
    done = subprocess.run([SHOPFLOOR, "workers", "check", "fine"], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "1 worker is fine\n"


def test_an_unreadable_worker_is_listed_with_the_other_problems(tmp_path: Path) -> None:
    sources = {"interrupts": "raise KeyboardInterrupt", "leaves": "raise SystemExit(3)", "broken": "1 / 0"}
    for slug, source in sources.items():
        (tmp_path / "workers" / slug).mkdir(parents=True)
        (tmp_path / "workers" / slug / "worker.py").write_text(source)
    (tmp_path / "workers" / "linked").mkdir()
    (tmp_path / "workers" / "linked" / "worker.yaml").symlink_to("nowhere.yaml")
    done = subprocess.run([SHOPFLOOR, "workers", "check"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "workers/broken/worker.py",
        "workers/interrupts/worker.py",
        "workers/leaves/worker.py",
        "workers/linked/worker.yaml",
    ]
    for line, reason in zip(
        lines, ("ZeroDivisionError", "KeyboardInterrupt", "SystemExit", "nowhere.yaml"), strict=True
    ):
        assert reason in line
