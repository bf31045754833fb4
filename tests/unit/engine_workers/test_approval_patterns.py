"""Patterns of calls that need an approval: which calls they match."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from shlex import quote
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shopfloor.engine.workers.approval_patterns import COMMAND_WRAPPERS, matching_patterns
from shopfloor.engine.workers.command_words import find_commands

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "approvals.md"
BEFORE_A_COMMAND = [
    "CMD",
    "cd /x && CMD",
    "cd /x; CMD",
    "true | CMD",
    "true & CMD",
    "# don't\nCMD",
    "A=1 CMD",
    "A=\"b c\" D+='e f' CMD",
    'GIT_SSH_COMMAND="ssh -i key" CMD',
    ">/dev/null CMD",
    "2>&1 > '/tmp/a file' CMD",
    "&>/dev/null CMD",
    "</dev/null CMD",
    "! CMD",
    "if true; then CMD; fi",
    "while CMD; do :; done",
    "for a in 1 2; do CMD; done",
    "case a in a) CMD;; esac",
    "function f { CMD; }; f",
    "f() { CMD; }; f",
    "( CMD )",
    "{ CMD; }",
    "echo $(CMD)",
    'echo "a $(CMD) b"',
    "cat <(CMD)",
    "sudo -u me CMD",
    "doas CMD",
    "env -i A='b c' CMD",
    "nice -n 5 CMD",
    "ionice -c 3 CMD",
    "nohup CMD &",
    "time -p CMD",
    "timeout --signal=KILL 5 CMD",
    "flock /tmp/lock CMD",
    "setsid CMD",
    "stdbuf -oL CMD",
    "exec CMD",
    "command CMD",
    "/usr/bin/env CMD",
    "strace -f CMD",
    "ls | xargs CMD",
    "ls | xargs -0 -n 1 CMD",
    "find . -name 'a b' -exec CMD {} \\;",
    "ssh me@host CMD",
    "watch CMD",
]
BEFORE_A_SCRIPT = [
    "sh -c SCRIPT",
    "bash -lc SCRIPT sh a",
    "eval SCRIPT",
    "su me -c SCRIPT",
    "su --command=SCRIPT me",
    "trap SCRIPT EXIT",
    "ssh me@host SCRIPT",
    "flock /tmp/lock -c SCRIPT",
    "env -S SCRIPT",
    "bash <<< SCRIPT",
    "xargs -I {} sh -c SCRIPT",
]


@pytest.mark.parametrize(
    ("pattern", "tool", "tool_input", "matches"),
    [
        ("Bash", "Bash", {"command": "ls"}, True),
        ("Bash", "bash", {"command": "ls"}, False),
        ("Bash(git push*)", "Bash", {"command": "git push origin main"}, True),
        ("Bash(git push*)", "Bash", {"command": "cd x && git push"}, True),
        ("Bash(git push*)", "Bash", {"command": "echo $(git push)"}, True),
        ("Bash(git push*)", "Bash", {"command": "git status"}, False),
        ("Bash(git push*)", "Bash", {"command": "git  'push'"}, True),
        ("Bash(git push*)", "Bash", {"command": "git \\\n push"}, True),
        ("Bash(git push*)", "Bash", {"command": "if true; then A=1 git push; fi"}, True),
        ("Bash(git push*)", "Bash", {"command": "sudo -u me /usr/bin/git push"}, True),
        ("Bash(git push*)", "Bash", {"command": "bash -lc 'cd x; git push'"}, True),
        ("Bash(git push*)", "Bash", {"command": "echo 'git push'"}, False),
        ("Bash(git push:*)", "Bash", {"command": "git push origin"}, True),
        ("Bash(git push:*)", "Bash", {"command": "git push"}, True),
        ("Bash(git push:*)", "Bash", {"command": "git pushed"}, False),
        ("command(git push*)", "command", {"command": 'git "${VALUE_X}"', "variables": {"VALUE_X": "push"}}, True),
        ("Edit(/etc/*)", "Edit", {"file_path": "/etc/passwd", "old_string": "a"}, True),
        ("Edit(/etc/*)", "Edit", {"file_path": "//tmp/../etc/passwd"}, True),
        ("Edit(/etc/*)", "Edit", {"file_path": "/home/etc/passwd"}, False),
        ("Edit(src/*)", "Edit", {"file_path": "/home/me/src/x.py"}, True),
        ("mcp__*", "mcp__shop__buy", {}, True),
        ("publish(*secret*)", "publish", {"word": "a secret"}, True),
        ("publish(*customer*)", "publish", {"url": "https://a.example", "body": "the customer list"}, True),
        ("publish(https:*)", "publish", {"url": "https://a.example", "body": "the customer list"}, True),
        ("publish(*customer*)", "publish", {"url": "https://a.example", "body": "nothing"}, False),
        ("WebFetch(*customer*)", "WebFetch", {"url": "https://a.example", "prompt": "customer?"}, False),
        ("Bash(*push*)", "Bash", {"command": "ls", "description": "Before the push"}, False),
    ],
)
def test_patterns_match_names_and_what_a_call_does(pattern: str, tool: str, tool_input: Any, matches: bool) -> None:
    assert (matching_patterns([pattern], tool, tool_input) == [pattern]) is matches


@pytest.mark.parametrize("template", [*BEFORE_A_COMMAND, *BEFORE_A_SCRIPT, "echo `CMD`"])
def test_a_command_is_found_behind_other_words(template: str) -> None:
    matches = matching_patterns(["Bash(rm *)"], "Bash", {"command": _wrap(template, "rm -rf x")})
    assert matches == ["Bash(rm *)"], template
    assert not matching_patterns(["Bash(rm *)"], "Bash", {"command": _wrap(template, "ls -l rm-list")})


@pytest.mark.parametrize("command", ["ls *.tmp | xargs rm", "find . -exec rm {} \\;", "find . -name x -exec rm {} +"])
def test_a_program_that_gets_its_arguments_from_another_is_found(command: str) -> None:
    assert matching_patterns(["command(rm *)"], "command", {"command": command})


words = st.lists(st.text("abX./-_ '\"$*", min_size=1, max_size=6), min_size=1, max_size=3)


@given(
    program=st.sampled_from(["rm", "git", "/usr/bin/git"]),
    arguments=words,
    templates=st.lists(st.sampled_from([*BEFORE_A_COMMAND, *BEFORE_A_SCRIPT]), min_size=1, max_size=3),
)
def test_a_pattern_that_matches_a_command_matches_it_behind_other_words(
    program: str, arguments: list[str], templates: list[str]
) -> None:
    command = " ".join([program, *map(quote, arguments)])
    pattern = f"Bash({_literal(' '.join([program, *arguments]))}*)"
    assert matching_patterns([pattern], "Bash", {"command": command})
    for template in templates:
        command = _wrap(template, command)
    assert matching_patterns([pattern], "Bash", {"command": command}), command


@given(st.text("a \\\n'\"`$(){}<>&|;#=-"), st.dictionaries(st.just("VALUE_X"), st.text("a '\"`$("), max_size=1))
def test_any_text_is_a_command_with_parts(command: str, variables: dict[str, str]) -> None:
    matching_patterns(["command(no such command)"], "command", {"command": command, "variables": variables})


def test_a_value_of_a_worker_changes_nothing_behind_it() -> None:
    tool_input = {"command": 'A="${VALUE_X}" git push', "variables": {"VALUE_X": "don't \""}}
    assert matching_patterns(["command(git push*)"], "command", tool_input)


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("git  'push' \"a b\"", [["git", "push", "a b"]]),
        ("2>&1 cmd {fd}>x arg <<< 'a b'", [["cmd", "arg", "a b"]]),
        ("echo \"$(a 'b c')\" d", [["a", "b c"], ["echo", "$(a 'b c')", "d"]]),
        ("find -exec rm {} \\;", [["find", "-exec", "rm", "{}", ";"]]),
        ("a \\\n b # c; d\ne", [["a", "b"], ["e"]]),
        ("a $'it\\'s' \"\\$b\"", [["a", "it's", "$b"]]),
        ("cat <<EOF\ndon't\nEOF", [["cat"], ["don't"], ["EOF"]]),
    ],
)
def test_words_are_read_as_a_shell_reads_them(script: str, commands: list[list[str]]) -> None:
    assert find_commands(script) == commands


def test_deeply_nested_commands_are_read_in_bounded_time() -> None:
    for command in ("$(" * 20_000, 'sudo "$(' * 2_000, "eval '" * 5_000, "sudo " * 5_000):
        matching_patterns(["Bash(no such command)"], "Bash", {"command": command})


@pytest.mark.req("SF-56")
def test_the_documents_list_the_programs_behind_which_commands_are_found() -> None:
    listed = next(line for line in DOCS.read_text().splitlines() if line.startswith("Commands are found behind"))
    assert set(re.findall(r"`([^` ]+)`", listed)) == COMMAND_WRAPPERS


def _wrap(template: str, command: str) -> str:
    return template.replace("CMD", command).replace("SCRIPT", quote(command))


def _literal(text: str) -> str:
    pattern = re.sub(r"([*?\[])", r"[\1]", text)
    assert fnmatchcase(text, pattern)
    return pattern
