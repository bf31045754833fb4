"""Values in the commands of a worker, with the installed command: a value is never executed as code."""

from __future__ import annotations

import json

import pytest

COUNT = """
description: Counts on, in a shell script and without a shell.
input:
  COUNT: {type: string}
steps:
  Calculate: {block: command, command: "echo $(( {{COUNT}} + 1 ))", output: NEXT}
output: NEXT
"""
PRINT = """
description: Prints its input, in a shell script and without a shell.
input:
  TEXT: {type: string}
steps:
  Script: {block: command, command: "printf '%s' '{{TEXT}}'", output: A}
  Program: {block: command, command: [printf, "%s", "{{TEXT}}"], output: B}
output: {script: "{{A}}", program: "{{B}}"}
"""
NESTED = """
description: Hands a value to another shell as program text.
input:
  TEXT: {type: string}
steps:
  Nested: {block: command, command: "sh -c \\"echo {{TEXT}}\\""}
"""


@pytest.fixture
def here(tmp_path):
    for slug, text in {"count": COUNT, "print": PRINT, "nested": NESTED}.items():
        folder = tmp_path / "here" / "workers" / slug
        folder.mkdir(parents=True)
        (folder / "worker.yaml").write_text(text)
    return tmp_path / "here"


@pytest.mark.req("SF-1")
def test_a_value_that_is_not_a_number_is_refused(shopfloor, here):
    refused = shopfloor("run", "count", "-i", "COUNT=$(touch owned)", cwd=here)
    assert refused.returncode == 1
    assert 'the value of `{{COUNT}}` must be a number at this place, got "$(touch owned)"' in refused.stderr
    assert not (here / "owned").exists()
    assert shopfloor("run", "count", "-i", "COUNT=41", "--quiet", cwd=here).stdout == "42\n"


@pytest.mark.req("SF-2")
def test_a_value_is_printed_as_it_is_and_the_record_has_script_and_value(shopfloor, here, transcripts):
    text = "a b'; touch owned; echo \"$(touch owned)"
    done = shopfloor("run", "print", "-i", f"TEXT={text}", "--quiet", cwd=here)
    assert json.loads(done.stdout) == {"script": text, "program": text}
    assert not (here / "owned").exists()
    shown = shopfloor("show", transcripts()[0].stem, cwd=here).stdout
    assert "$ printf '%s' ''\"${VALUE_TEXT}\"''\n" in shown
    assert "  VALUE_TEXT='a b'\"'\"'; touch owned;" in shown
    assert "$ printf %s 'a b'\"'\"'; touch owned;" in shown


@pytest.mark.req("SF-1")
def test_a_value_in_the_program_text_of_another_shell_is_refused_before_anything_runs(shopfloor, here):
    checked = shopfloor("workers", "check", "nested", cwd=here)
    assert checked.returncode != 0
    assert "worker.yaml:6: `{{TEXT}}` is in the program text of `sh`; pass the value as an argument" in (
        checked.stdout + checked.stderr
    )
    refused = shopfloor("run", "nested", "-i", "TEXT=x", cwd=here)
    assert refused.stderr.startswith("error[invalid_worker]: ")
