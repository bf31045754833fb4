"""Reading a worker's folder: valid definitions, and every kind of problem."""

from pathlib import Path
from textwrap import dedent

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shopfloor.engine.workers import (
    EXAMPLE_WORKERS,
    Definition,
    ValidationContext,
    WorkerCatalog,
    check_worker,
    definition_hash,
    path_segment,
    read_worker,
)
from shopfloor.engine.workers.definition import (
    AddMessage,
    CommandStep,
    Condition,
    Custom,
    ForEach,
    NextMessage,
    Parallel,
    StartThread,
    While,
)
from shopfloor.errors import InvalidWorker, UnknownModel

THREAD = """
  Begin:
    block: start-thread
    model: script/hello
"""


def problems_of(folder: Path, **options) -> list[str]:
    """Return the problems of a worker, without the path of its folder."""
    return [str(problem).replace(f"{folder}/", "") for problem in check_worker(folder, ValidationContext(**options))]


# Valid definitions


def test_a_worker_is_its_yaml_with_its_prompts_and_the_folders_name(make_worker):
    folder = make_worker(
        """
        name: Mine
        description: Does it.
        input:
          TOPIC: {description: what about}
          DEPTH: {type: integer, default: 3}
          PLAIN:
        steps:
          Find sources:
            block: start-thread
            model: script/research
            system: system
            maxSteps: 4
          Say it: {block: add-message, text: "About {{TOPIC}}"}
          Answer: {block: next_message, output: TEXT}
        output: TEXT
        """,
        system="Be brief about {{TOPIC}}.",
    )
    definition = read_worker(folder)
    assert definition.slug == "mine"
    assert definition.prompts == {"system": "Be brief about {{TOPIC}}."}
    assert definition.input["DEPTH"].default == 3
    assert definition.input["PLAIN"].type == "string"
    begin, say, answer = definition.steps.values()
    assert isinstance(begin, StartThread)
    assert (begin.thread, begin.max_steps) == ("main", 4)
    assert isinstance(say, AddMessage)
    assert isinstance(answer, NextMessage)
    assert problems_of(folder) == []


def test_a_definition_survives_encoding_and_decoding():
    for worker in WorkerCatalog([EXAMPLE_WORKERS]).all():
        encoded = msgspec.json.encode(worker.definition)
        again = msgspec.json.decode(encoded, type=Definition)
        assert again == worker.definition
        assert definition_hash(again) == definition_hash(worker.definition)


@pytest.mark.req("TR-70")
def test_the_hash_of_a_worker_in_yaml_ignores_comments_and_layout(make_worker):
    one = "steps:\n  A: {block: command, command: ls}\n  B: {block: command, command: pwd}\n"
    same = "# A comment.\nsteps:\n  'A':\n    command: ls # here\n    block: command\n\n  B: {block: command, command: pwd}\n"
    other = "steps:\n  B: {block: command, command: pwd}\n  A: {block: command, command: ls}\n"
    hashes = [definition_hash(read_worker(make_worker(text))) for text in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert hashes[0].startswith("json1:")


def test_steps_inside_of_steps_are_read(make_worker):
    definition = read_worker(
        make_worker(
            """
            variables: {COUNT: {default: 0}}
            steps:
              Both:
                block: parallel
                branches:
                  Left: {Ls: {block: command, command: ls, output: L}}
                  Right: {Pwd: {block: command, command: pwd}}
              Each:
                block: for_each
                each: [1, 2]
                steps: {Show: {block: command, command: "echo {{ITEM}} {{ROUND}}", output: SEEN}}
                collect: SEEN
                output: ALL
              Until:
                block: while
                while: {value: "{{COUNT}}", less: 3}
                steps: {Count: {block: command, command: "echo {{ROUND}}", output: COUNT}}
            output: {all: "{{ALL}}", left: "{{L}}"}
            """
        )
    )
    both, each, until = definition.steps.values()
    assert isinstance(both, Parallel)
    assert isinstance(both.branches["Left"]["Ls"], CommandStep)
    assert isinstance(each, ForEach)
    assert each.as_ == "ITEM"
    assert isinstance(until, While)
    assert until.condition == Condition(value="{{COUNT}}", less=3)


def test_a_custom_kind_of_step_is_a_block(make_worker):
    folder = make_worker(
        """
        kinds: {send_mail: "json:dumps"}
        steps:
          Send: {block: send-mail, to: ada, subject: hi, output: SENT, description: mails}
          Send again: {block: custom, kind: send_mail, with: {to: bob}}
        output: SENT
        """
    )
    first, second = read_worker(folder).steps.values()
    assert first == Custom(kind="send_mail", with_={"to": "ada", "subject": "hi"}, output="SENT", description="mails")
    assert second == Custom(kind="send_mail", with_={"to": "bob"})


def test_parameters_of_a_tool_may_be_written_by_name(make_worker):
    folder = make_worker(
        f"""
        tools:
          short: {{parameters: {{query: {{type: string}}, limit: {{type: integer, optional: true}}}}}}
          long: {{parameters: {{type: object, properties: {{}}}}}}
          none:
        steps: {THREAD.replace(chr(10), chr(10) + " " * 8)}
        """
    )
    tools = read_worker(folder).tools
    assert tools["short"].parameters == {
        "type": "object",
        "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["query"],
    }
    assert tools["long"].parameters == tools["none"].parameters == {"type": "object", "properties": {}}


def test_boolean_words_of_yaml_1_1_are_text(make_worker):
    folder = make_worker(
        "variables: {A: {default: yes}, B: {default: 12:30}, C: {default: 2026-11-15}}\nsteps:" + THREAD
    )
    assert [variable.default for variable in read_worker(folder).variables.values()] == ["yes", "12:30", "2026-11-15"]


def test_a_python_file_is_named_from_the_workers_folder(make_worker):
    folder = make_worker("tools: {search: {handler: 'tools.py:search'}}\nsteps:" + THREAD)
    assert problems_of(folder)[0].startswith("worker.yaml:1: there is no file")
    (folder / "tools.py").write_text("def search(arguments): return 'found'\n")
    assert problems_of(folder) == []
    assert read_worker(folder).tools["search"].handler == f"{folder}/tools.py:search"


@pytest.mark.parametrize(
    ("name", "segment"),
    [("Find sources", "find-sources"), ("  A_b! c ", "a-b-c"), ("Überblick 2", "überblick-2"), ("!!!", "")],
)
def test_the_segment_of_a_step_is_the_slug_of_its_name(name, segment):
    assert path_segment(name) == segment


# Problems


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["worker.yaml:1: the document is empty"]),
        ("- a", ["worker.yaml:1: a worker is a mapping with `steps`, not a list"]),
        ("name: x", ["worker.yaml:1: a worker needs `steps`: a mapping of names to steps"]),
        (
            "a: [",
            [
                (
                    "worker.yaml:1: not valid YAML, column 5: check the indentation, quotes and brackets of this line "
                    "(while parsing a flow node expected the node content, but found '<stream end>')"
                )
            ],
        ),
        ("slug: x\nsteps:" + THREAD, ["worker.yaml:1: `slug` cannot be set here: the slug is the name of the folder"]),
        (
            "descripton: x\nsteps:" + THREAD,
            [
                "worker.yaml:1: a worker has no field `descripton`; did you mean `description`? There are `name`, `description`, `input`, `variables`, `tools`, `memory`, `approve`, `approveTimeout`, `requires`, `kinds`, `steps`, `output`"
            ],
        ),
        ("name: 3\nsteps:" + THREAD, ["worker.yaml:1: `name` must be text or nothing, got a whole number"]),
        ("steps: {A: {block: command, command: ls, command: pwd}}", ["worker.yaml:1: duplicate key `command`"]),
        ("steps: {A: {command: ls}}", None),
        ("steps: {A: 3}", ["worker.yaml:1: the step `A` must be a mapping with `block`, got 3"]),
        (
            "steps: {A: {block: comand}}",
            [
                "worker.yaml:1: there is no block `comand`; did you mean `command`?",
                "worker.yaml:1: a `command` step needs `command`: text or a list",
            ],
        ),
        ("steps:\n  A:\n    block: command", ["worker.yaml:2: a `command` step needs `command`: text or a list"]),
        (
            "steps:\n  A:\n    block: operation\n    plugin: Word Count\n    tool: ''\n    input: {text: '{{NO}}'}",
            [
                "worker.yaml:4: `Word Count` is not a valid plugin name: lower-case letters, digits and `-`",
                "worker.yaml:5: `tool` needs the name of a tool of the plugin",
                "worker.yaml:6: `{{NO}}` is not defined before the step `A`; no values are defined yet",
            ],
        ),
        (
            "steps:\n  A:\n    block: operation\n    plugin: a",
            ["worker.yaml:2: a `operation` step needs `tool`: text"],
        ),
        ("memory: yes please\nsteps:" + THREAD, ["worker.yaml:1: `memory` must be true or false, got text"]),
        (
            "steps:\n  A:\n    block: command\n    command: ls\n    retry: {limt: 3}",
            [
                "worker.yaml:5: `retry` has no field `limt`; did you mean `limit`? There are `limit`, `delay`, `factor`, `maxDelay`, `always`"
            ],
        ),
        (
            "steps:\n  A:\n    block: command\n    command: ls\n    timeout: 0",
            ["worker.yaml:5: `timeout` must be a number > 0.0"],
        ),
        (
            "steps:\n  A:\n    block: start-thread\n    model: a/b\n    thinking: hard",
            ["worker.yaml:5: `thinking` must be low, medium or high, got `hard`"],
        ),
        (
            "steps:\n  A:\n    block: start-thread\n    model: a/b\n    tools:\n      - 3",
            ["worker.yaml:6: `tools` must be text, got a whole number"],
        ),
        ("input: {A: {type: strin}}\nsteps:" + THREAD, None),
        (
            "input: {A: {type: integer, default: x}}\nsteps:" + THREAD,
            ["worker.yaml:1: the default of `A` must be a whole number, got 'x'"],
        ),
        (
            "input: {a b: {}}\nsteps:" + THREAD,
            ["worker.yaml:1: `a b` is not a valid name: letters, digits, `_` and `-`"],
        ),
        ("steps: {A: {block: start-thread, model: gpt}}", None),
        (
            "steps:\n  A b: {block: command, command: ls}\n  a-b: {block: command, command: ls}",
            ["worker.yaml:3: the steps `A b` and `a-b` would both be `a-b` in the log"],
        ),
        (
            "steps:\n  A: {block: next-message}",
            ["worker.yaml:2: the thread `main` is not started before this step; add a `start-thread` step before it"],
        ),
        (
            "steps:" + THREAD + "  B: {block: add-message, prompt: nope}",
            ["worker.yaml:5: there is no prompt `nope` (prompts/nope.md); there are none"],
        ),
        (
            "steps:" + THREAD + "  B: {block: add-message}",
            ["worker.yaml:5: an `add-message` step needs either `prompt` or `text`"],
        ),
        (
            "input: {NAME: }\nsteps:" + THREAD + "  B:\n    block: add-message\n    text: Hi {{NAM}}",
            ["worker.yaml:8: `{{NAM}}` is not defined before the step `B`; did you mean `NAME`?"],
        ),
        (
            "steps:\n  A: {block: tool-call, tool: serch}\ntools: {search: }",
            ["worker.yaml:2: there is no tool `serch`; did you mean `search`?"],
        ),
        (
            "steps:" + THREAD + "output: TEXT",
            ["worker.yaml:5: `output` names `TEXT`, which is never set; there are none"],
        ),
        (
            "steps:\n  A:\n    block: command\n    command: |\n      echo `cat {{X}}`\ninput: {X: }",
            [
                "worker.yaml:4: `{{X}}` is between backticks (use `$(…)`); move it out of there, or write the command as a list"
            ],
        ),
        ("steps: {A: {block: run-worker, worker: 'No Slug'}}", None),
        (
            "requires:\n  labels: {gpu: a b}\n  provider: [codex]\nsteps: {A: {block: terminal}}",
            [
                "worker.yaml:2: the label gpu=a b is not valid: letters, digits, `.`, `_`, `/` and `-`, at most 63",
                (
                    "worker.yaml:3: `requires` has no field `provider`; did you mean `providers`? "
                    "There are `labels`, `providers`"
                ),
            ],
        ),
        ("steps: {A: {block: custom, kind: mine}}", ["worker.yaml:1: `kinds` does not name `mine`; there are none"]),
        (
            "kinds: {mine: 'no_such_module_here:f'}\nsteps: {A: {block: mine}}",
            [
                (
                    "worker.yaml:1: there is no module `no_such_module_here` "
                    "(install it, set PYTHONPATH, or name a file: `path/to/file.py`)"
                )
            ],
        ),
        (
            "kinds: {mine: 'json:dmps'}\nsteps: {A: {block: mine}}",
            ["worker.yaml:1: `json` has no `dmps` (did you mean `dumps`?)"],
        ),
        ("kinds: {mine: 'json:__name__'}\nsteps: {A: {block: mine}}", None),
        ("a: !!python/object:os.system x", None),
        ("a: .inf", None),
        ("a: 99999999999999999999999", None),
        ('a: "\\ud800"', None),
        ("a: {<<: {b: 1}}", None),
        ("? [a]\n: b", None),
    ],
)
def test_a_problem_is_reported_with_its_line(make_worker, text, problems):
    folder = make_worker(text)
    found = problems_of(folder)
    if problems is None:
        assert len(found) >= 1
    else:
        assert found == problems
    if not any("cannot be loaded" in problem or "module" in problem or "json" in problem for problem in found):
        with pytest.raises(InvalidWorker) as caught:
            read_worker(folder)
        assert str(caught.value).replace(f"{folder}/", "").startswith(found[0])
        assert caught.value.hint == f"shopfloor workers check {folder}"


def test_all_problems_are_reported_at_once(make_worker):
    folder = make_worker(
        """\
        descripton: x
        steps:
          A: {block: start-thread}
          B: {block: nxt-message}
          C: {block: parallel, branches: {D: {E: {block: command, comand: ls}}}}
        """
    )
    assert [problem.line for problem in check_worker(folder)] == [1, 3, 4, 5]


def test_structural_problems_do_not_hide_undefined_references(make_worker):
    """Both are reported in one pass, without problems that only follow from a misspelling."""
    folder = make_worker(
        """\
        input: {TOPIC: {tpye: string}}
        tools: {look: {handler: "no_such_module:f"}}
        steps:
          Begin: {block: strt-thread, model: gpt, system: nobody, tools: [lok]}
          Say: {block: add-message, text: "{{TOPC}} {{TOPIC | upper}}", rol: user}
          Next: {block: next-message, outptu: NOTES, schema: {type: strin}}
          Use: {block: command, command: 3, timeout: soon, env: {A: "{{NOTES}} {{NOBODY}}"}}
          Loop: {block: for-each, each: "a {{TOPIC}}", steps: {Inner: {block: command, command: "ls {{ITM}}"}}}
        output: NOTES
        """
    )
    assert [(problem.line, problem.reason.partition(";")[0]) for problem in check_worker(folder)] == [
        (1, "`TOPIC` has no field `tpye`"),
        (2, "there is no module `no_such_module` (install it, set PYTHONPATH, or name a file: `path/to/file.py`)"),
        (4, "there is no block `strt-thread`"),
        (4, "the model `gpt` must be `provider/name`, as in `anthropic/claude-sonnet-4-5`"),
        (4, "there is no tool `lok`"),
        (4, "there is no prompt `nobody` (prompts/nobody.md)"),
        (5, "a `add-message` step has no field `rol`"),
        (5, "`{{TOPC}}` is not defined before the step `Say`"),
        (5, "`{{TOPIC | upper}}`: filters such as `upper` are not supported"),
        (6, "a `next-message` step has no field `outptu`"),
        (6, "`schema` is not a valid JSON Schema: 'strin' is not valid under any of the given schemas"),
        (7, "`command` must be text or a list, got a whole number"),
        (7, "`{{NOBODY}}` is not defined before the step `Use`"),
        (7, "`timeout` must be seconds, a duration such as `90s`, `10m` or `2h`, or `{{NAME}}` of one, got `soon`"),
        (8, "`each` must be a list, or `{{NAME}}` of a list"),
        (8, "`{{ITM}}` is not defined before the step `Inner`"),
    ]


def test_an_undefined_name_in_a_prompt_is_reported_with_its_own_line(make_worker):
    folder = make_worker(
        """
        input: {NAME: , OTHER: }
        steps:
          A: {block: start-thread, model: a/b, system: hi, input: [NAME]}
        """,
        hi="Hello {{NAME}}.\nAnd {{NOBODY}},\n{{OTHER}} and \\{{KEPT}}.",
    )
    assert problems_of(folder) == [
        "prompts/hi.md:2: `{{NOBODY}}` is not defined; there is `NAME`",
        "prompts/hi.md:3: `{{OTHER}}` is not in the `input` of its step; there is `NAME`",
    ]


def test_variables_of_a_round_are_local_and_those_of_branches_are_not(make_worker):
    folder = make_worker(
        """\
        steps:
          Both:
            block: parallel
            branches:
              One: {A: {block: command, command: ls, output: X}}
              Two: {B: {block: command, command: "echo {{X}}"}}
          After: {block: command, command: "echo {{X}}"}
          Each: {block: for-each, each: [1], steps: {C: {block: command, command: ls, output: Y}}, collect: Z, output: ALL}
          Late: {block: command, command: "echo {{Y}} {{ITEM}}"}
        """
    )
    assert [problem.line for problem in check_worker(folder)] == [6, 8, 9, 9]


def test_models_and_workers_are_checked_if_the_context_knows_them(make_worker):
    def check(model: str) -> None:
        raise UnknownModel(f"nobody answers as {model}", hint="name another")

    folder = make_worker(
        """\
        steps:
          A: {block: start-thread, model: no/body, tools: [ask]}
          B: {block: run-worker, worker: helo}
        """
    )
    assert problems_of(folder) == []
    assert problems_of(folder, check_model=check, workers={"hello": Definition(slug="hello")}) == [
        "worker.yaml:2: nobody answers as no/body (name another)",
        "worker.yaml:3: there is no worker `helo`; did you mean `hello`?",
    ]


def test_files_that_cannot_be_read_are_problems(tmp_path, make_worker):
    assert problems_of(tmp_path / "nothing") == ["worker.yaml:1: there is no such file"]
    folder = make_worker("x" * 300_000)
    assert problems_of(folder) == ["worker.yaml:1: the file has more than 262,144 bytes"]
    (folder / "worker.yaml").write_bytes(b"name: x\nsteps: \xff")
    assert problems_of(folder) == ["worker.yaml:2: the file is not UTF-8 text"]
    (folder / "worker.yaml").unlink()
    (folder / "worker.yaml").mkdir()
    assert problems_of(folder) == ["worker.yaml:1: cannot be read: Is a directory"]


def test_a_folder_whose_name_is_not_a_slug_is_a_problem(make_worker):
    folder = make_worker("steps:" + THREAD, slug="My Worker")
    assert problems_of(folder) == [
        "worker.yaml:1: the folder's name `My Worker` is not a valid slug: lower-case letters, digits and `-`"
    ]


def test_aliases_that_expand_without_limit_are_rejected(make_worker):
    bomb = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]\n"
        for before, after in zip("abcdef", "bcdefg", strict=True)
    )
    assert problems_of(make_worker(bomb)) == ["worker.yaml:1: the document has more than 20,000 values"]
    assert problems_of(make_worker("a: &a [*a]")) == ["worker.yaml:1: the document is nested more than 40 levels deep"]
    assert problems_of(make_worker("[" * 5_000)) == ["worker.yaml:1: the document is nested more than 40 levels deep"]


FRAGMENTS = st.sampled_from(
    [
        "steps",
        "block",
        "command",
        "start-thread",
        "for-each",
        "each",
        "while",
        "value",
        "{{X}}",
        "input",
        "output",
        "variables",
        "tools",
        "branches",
        "parallel",
        "model",
        "a/b",
        "~",
        "1",
        "[1]",
        "{}",
        "kinds",
        "custom",
        "*a",
        "&a x",
    ]
)
DOCUMENTS = st.recursive(
    FRAGMENTS,
    lambda inner: st.dictionaries(FRAGMENTS, inner, max_size=4).map(
        lambda mapping: "{" + ", ".join(f'"{key}": {value}' for key, value in mapping.items()) + "}"
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(), DOCUMENTS, st.lists(FRAGMENTS).map(": ".join), st.lists(FRAGMENTS).map(":\n  ".join)))
def test_any_text_is_a_worker_or_has_problems(tmp_path: Path, text: str):
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    (folder / "worker.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        definition = read_worker(folder)
    except InvalidWorker as error:
        assert str(folder / "worker.yaml") in error.message  # noqa: PT017 - either is fine
    else:
        assert msgspec.json.decode(msgspec.json.encode(definition), type=Definition) == definition


STEPS = """
steps:
  A: {block: command, command: ls, output: X}
  B: %s
"""


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(FRAGMENTS, inner),
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_step_is_valid_or_has_problems(tmp_path: Path, step: object):
    folder = tmp_path / "any"
    folder.mkdir(exist_ok=True)
    shown = msgspec.json.encode(step).decode() if _fits(step) else "1"
    (folder / "worker.yaml").write_text(dedent(STEPS) % shown, encoding="utf-8")
    check_worker(folder)


def _fits(step: object) -> bool:
    try:
        msgspec.json.encode(step)
    except (OverflowError, UnicodeEncodeError):
        return False
    return True
