"""Filling templates with values, and shell commands above all."""

import json
import os
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shopfloor.engine.workers import (
    Definition,
    evaluate_condition,
    fill,
    fill_argv,
    fill_shell,
    fill_text,
    output_value,
    placeholders,
)
from shopfloor.engine.workers.definition import Condition
from shopfloor.engine.workers.templating import argv_problems, shell_problems
from shopfloor.errors import StepFailed

VALUES = {"NAME": "Ada", "N": 3, "LIST": ["a", {"b": [True, None]}], "NOTHING": None, "with-dash": 1}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]*", fullmatch=True)


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("Hi {{NAME}}!", "Hi Ada!"),
        ("{{ NAME }}{{N}}", "Ada3"),
        ("{{N}}", 3),
        ("{{LIST}}", VALUES["LIST"]),
        ("{{LIST.1.b.0}}", True),
        ("it is {{LIST.1}}", 'it is {"b": [true, null]}'),
        ("{{NOTHING}}", None),
        ("x{{NOTHING}}", "xnull"),
        ("{{with-dash}}", 1),
        ("\\{{NAME}} stays", "{{NAME}} stays"),
        ("{{.Names}} {{range x}} {{}} {NAME}", "{{.Names}} {{range x}} {{}} {NAME}"),
        ({"a": ["{{N}}", {"b": "{{NAME}}s"}], "{{N}}": 1.5}, {"a": [3, {"b": "Adas"}], "{{N}}": 1.5}),
        (None, None),
    ],
)
def test_names_are_replaced_by_their_values(template, filled):
    assert fill(template, VALUES) == filled


@pytest.mark.parametrize(
    ("template", "message", "hint"),
    [
        ("{{NAM}}", "`{{NAM}}`: there is no value `NAM`", "did you mean `NAME`?"),
        ("{{LIST.7}}", "`{{LIST.7}}`: there is no item 7 in a list of 2", None),
        ("{{LIST.x}}", "`{{LIST.x}}`: there is no item x in a list of 2", None),
        ("{{LIST.1.c}}", "`{{LIST.1.c}}`: there is no `c`", "there is `b`"),
        ("{{NAME.first}}", "`{{NAME.first}}`: there is no `first` in Ada", None),
        (
            "{{LIST.99999999999999999999}}",
            "`{{LIST.99999999999999999999}}`: there is no item 99999999999999999999 in a list of 2",
            None,
        ),
    ],
)
def test_a_name_without_a_value_is_reported(template, message, hint):
    with pytest.raises(StepFailed) as caught:
        fill(template, VALUES)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_placeholders_are_the_names_without_their_fields():
    assert placeholders({"a": ["{{B.c}} {{D}}"], "{{E}}": 3, "f": "\\{{G}}"}) == {"B", "D"}


def test_a_prompt_is_always_text():
    assert fill_text("{{N}}", VALUES) == "3"
    assert fill_text("{{NAME}}", VALUES) == "Ada"


@given(NAMES, JSON)
def test_a_name_alone_is_the_value_itself(name: str, value: object):
    assert fill(f"{{{{{name}}}}}", {name: value}) == value
    assert placeholders(f"{{{{{name}}}}}") == {name}


@given(st.text(), NAMES, JSON)
def test_inside_of_text_a_value_is_text_and_is_never_filled_again(before: str, name: str, value: object):
    before = before.replace("{", "").replace("\\", "")
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    assert fill(f"{before}|{{{{{name}}}}}", {name: value}) == f"{before}|{text}"


@given(JSON)
def test_a_template_without_names_stays_unchanged(value: object):
    if not placeholders(value) and "\\{{" not in json.dumps(value).replace("\\\\", "\\"):
        assert fill(value, {}) == value


@given(st.text())
def test_any_text_is_filled_or_reports_a_name_without_a_value(text: str):
    values = dict.fromkeys(placeholders(text), "x")
    assert isinstance(fill(f"{text} ", values), str)


# Conditions


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition(value="{{N}}", is_=3), True),
        (Condition(value="{{N}}", is_="3"), False),
        (Condition(value=1, is_=True), False),
        (Condition(value="{{NOTHING}}", is_=None), True),
        (Condition(value="{{N}}", not_=3), False),
        (Condition(value="{{N}}", more=2, less=4), True),
        (Condition(value="{{N}}", more=2, less=3), False),
        (Condition(value=" 12\n", less=13), True),
        (Condition(value="b", more="a"), True),
        (Condition(value="{{NAME}}", contains="d"), True),
        (Condition(value="{{LIST}}", contains="a"), True),
        (Condition(value={"a": 1}, contains="b"), False),
        (Condition(value="{{NAME}}", within=["{{NAME}}", "Bob"]), True),
        (Condition(value="{{NAME}}"), True),
        (Condition(value=""), False),
    ],
)
def test_a_condition_is_true_if_all_its_comparisons_are(condition, expected):
    assert evaluate_condition(condition, VALUES) is expected


@pytest.mark.parametrize(
    "condition", [Condition(value="x", less=3), Condition(value=[], more=3), Condition(value=3, contains=3)]
)
def test_values_that_cannot_be_compared_fail_the_step(condition):
    with pytest.raises(StepFailed):
        evaluate_condition(condition, {})


def test_an_output_is_the_value_of_a_name_or_a_shape_with_names_in_it():
    assert output_value(Definition(slug="a", output="N"), VALUES) == 3
    assert output_value(Definition(slug="a", output={"n": "{{N}}"}), VALUES) == {"n": 3}
    assert output_value(Definition(slug="a", output="just text"), VALUES) == "just text"


# Shell commands


SAFE = [
    "printf %s {{X}}",
    'printf %s "{{X}}"',
    "printf %s '{{X}}'",
    "printf %s \"\"'{{X}}'",
    "printf %s $(printf %s {{X}})x",
    "(printf %s {{X}})",
    'true "$(true "a")"; printf %s "{{X}}" # done',
    "cat <<< {{X}} | head -c -1",
    'printf %s \\"{{X}}',
    'printf %s "$(printf %s "{{X}}")"',
    "cat <<E | head -c -1\n{{X}}\nE\n",
    "sh -c 'printf %s \"$1\"' sh {{X}}",
    'x={{X}}; printf %s "$x"',
    'for i in {{X}}; do printf %s "$i"; done',
    "case {{X}} in a) ;; *) printf %s {{X}};; esac",
    "[ {{X}} = ab ] || printf %s {{X}}",
    "env X={{X}} printenv X | head -c -1",
]
HOSTILE = [
    "$(touch owned)",
    "`touch owned`",
    "'; touch owned; '",
    '"; touch owned; "',
    "a b",
    "*",
    "\\",
    "\n",
    "#",
    "",
    "é€",
    "-n",
]


@pytest.mark.parametrize("command", SAFE)
@pytest.mark.parametrize("value", HOSTILE)
def test_a_value_in_a_command_is_always_one_word(tmp_path, command, value):
    assert list(shell_problems(command)) == []
    done = execute("bash", fill_shell(command, {"X": value}), tmp_path)
    expected = f'"{value}' if command.endswith('\\"{{X}}') else f"{value}x" if command.endswith(")x") else value
    # The shell strips line ends from the output of a substitution, and splits it outside of quotes.
    if "$(printf" not in command:
        assert done.stdout == expected
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def execute(shell, script, folder):
    variables = {**os.environ, **script.variables}
    return subprocess.run(
        [shell, "-c", script.text], cwd=folder, env=variables, capture_output=True, text=True, timeout=30
    )


@given(st.text(alphabet=st.sampled_from("ab '\"`$(){}\\;&|<>#*?~!\n\t-"), max_size=12))
@example("'\"'\"'")
def test_a_quoted_value_is_read_back_as_it_was(value: str):
    for command in ("printf %s {{X}}.", 'printf %s "{{X}}".', "printf %s '{{X}}'."):
        assert execute("sh", fill_shell(command, {"X": value}), None).stdout == f"{value}."


@pytest.mark.parametrize(
    "command",
    [
        'x={{X}}; echo "$x"',
        "cd {{X}} && ls -la",
        "grep -r {{X}} src | head -n 5",
        'for f in {{X}}; do echo "$f"; done',
        'x={{X}}; if [ -n "$x" ]; then echo yes; fi',
        'x={{X}}; [ "$x" = a ] && echo',
        "git commit -m {{X}}",
        "git clone {{X}} dir",
        "PATH=$PATH:/opt/bin; tool {{X}}",
        'x={{X}}; PATH=$HOME/bin:$PATH tool "$x"',
        'name={{X}}; curl -s "https://a/$name" | jq .a',
        "cat <<E\nHello {{X}}\nE",
        "cat > f <<E\n{{X}}\nE",
        "python3 script.py {{X}}",
        "python3 -m pytest {{X}}",
        'python3 -c "import sys; print(sys.argv[1])" {{X}}',
        "sh -c 'echo \"$1\"' sh {{X}}",
        "i=0; while [ $i -lt 3 ]; do echo {{X}}; i=$((i+1)); done",
        "echo {{X}} | tr a b | sort",
        'echo {{X}} | while read -r l; do echo "$l"; done',
        'find {{X}} -name "*.py"',
        "find . -name {{X}} -print0 | xargs -0 rm -f",
        "ls | xargs -I{} echo {} {{X}}",
        "timeout 5 curl {{X}}",
        "env FOO={{X}} printenv FOO",
        "FOO={{X}} python3 a.py",
        "export FOO={{X}}; ./run.sh",
        "docker run --rm -v {{X}}:/d img ls /d",
        "tar czf {{X}} src",
        "sed -n 1,5p {{X}}",
        "awk -F: '{print $1}' {{X}}",
        "awk -v n={{X}} '$1 == n' f",
        ". ./venv/bin/activate; python a.py {{X}}",
        "source env.sh; tool {{X}}",
        "set -e; make {{X}}",
        'x={{X}}; echo "${x:-default}" "${x%.txt}" "${#x}"',
        'd=$(mktemp -d); cp {{X}} "$d"',
        "out=$(echo {{X}} | wc -c); echo $out",
        "trap 'rm -f tmp' EXIT; cp {{X}} tmp",
        'x={{X}}; case "$x" in a*) echo;; esac',
        'f() { echo "$1"; }; f {{X}}',
        "test -f {{X}} && cat {{X}}",
        "[ -d {{X}} ] || mkdir -p {{X}}",
        "kill $(pgrep -f {{X}})",
        "sudo -u me ls {{X}}",
        "xargs -0 grep {{X}} < f",
        'printf "%s\\n" {{X}} >> f',
        "echo \"{{X}}\" '{{X}}' > out",
        'n={{X}}; seq 1 "$n"',
        "python3 --version; echo {{X}}",
        "bash script.sh {{X}}",
        "nohup ./serve {{X}} &",
        "psql -f q.sql -v name={{X}}",
        "ssh host true; echo {{X}}",
        'sqlite3 app.db "select 1"; echo {{X}}',
        "x={{X}}; for i in $x; do echo $i; done",
        'curl -d @- u <<E\n{"a": "{{X}}"}\nE',
        "jq --arg x {{X}} '.a = $x' f",
        'x={{X}}; find "$x" -type f',
        "git log --format=%H --author={{X}}",
        "npm test -- {{X}}",
        'set -- {{X}}; echo "$@"',
        "x={{X}}; ls $x",
        'read -r a < f; echo "$a" {{X}}',
        'while read -r l; do grep "$l" {{X}}; done < f',
        'x={{X}}; y=$(basename "$x" .txt); mv "$x" "$y.md"',
        "uv run script.py {{X}}",
        "node app.js {{X}}",
        "make -C {{X}} all",
        'x={{X}}; timeout 5 ./t "$x"',
        'x={{X}}; env A="$x" ./t',
        'x={{X}}; A="$x" sh ./t',
        'x={{X}}; nohup ./t "$x"',
    ],
)
def test_a_usual_script_accepts_a_value(command):
    assert "VALUE_X" in fill_shell(command, {"X": "hello"}).text


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("echo `cat {{X}}`", "between backticks (use `$(…)`)"),
        ("cat <<'EOF'\n{{X}}\nEOF", "in a here-document with a quoted delimiter"),
        ("cat <<EOF\n$(cat {{X}})\nEOF", "substitutions or escapes in a here-document"),
        ("echo hi # {{X}}", "in a comment"),
        ("(echo hi)#{{X}}", "in a comment"),
        ('echo "${A:-{{X}}}"', "inside of `${…}`"),
        ("echo $'a' {{X}}", "after `$'…'`"),
        ('echo "$(case a in a) echo "b" {{X}};; esac)"', "after a `case` inside of a substitution"),
        ("echo ${{X}}", "after a `$`"),
        ("a[{{X}}]=1", "in a subscript"),
        ("[[ {{X}} -eq 1 ]]", "in `[[ … ]]`"),
        ("[ {{X}} {{X}} ]", "next to another value in `[`"),
        ("[ -v {{X}} ]", "evaluates names of variables"),
        ("{{X}} --version", "where the name of a program is expected"),
        ('sh -c "echo {{X}}"', "in the program text of `sh`"),
        ('sudo -u me bash -lc "echo {{X}}"', "in the program text of `bash`"),
        ("bash {{X}}", "in the program text of `bash`"),
        ("echo {{X}} | sh", "`sh` executes its standard input"),
        ('x={{X}}; sh -c "echo $x"', "`sh -c` executes text with variables"),
        ("x={{X}}; eval echo $x", "in a script with `eval`"),
        ("ssh host ls {{X}}", "in the arguments of `ssh`"),
        ('$SHELL -c "{{X}}"', "in the program text of another program"),
        ('python3 -c "print({{X}})"', "in the program text of `python3`"),
        ('sed "s/a/{{X}}/" file', "in the program text of `sed`"),
        ("env FOO=1 {{X}} 6", "where the name of a program is expected"),
        ("exec {{X}}", "where the name of a program is expected"),
        ("find . -exec {{X}} ';'", "where the name of a program is expected"),
        ("y={{X}}; $y 17", "gets into a variable that is where the name of a program is expected"),
        ("trap {{X}} EXIT", "in the arguments of `trap`"),
        ("export {{X}}", "in the arguments of `export`"),
        ("printf {{X}}", "in the format of `printf`"),
        ("PATH={{X}} ls", "in a value of `PATH`"),
        ("x=( {{X}} )", "in or after an array"),
        ("echo '{{X}}", "in quotes that are never closed"),
    ],
)
def test_a_value_is_rejected_where_a_shell_could_evaluate_it(command, reason):
    [*_, (_, problem)] = shell_problems(command)
    assert reason in problem
    with pytest.raises(StepFailed) as refused:
        fill_shell(command, {"X": "x"})
    assert reason in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize(
    "command",
    [
        "echo $(( {{X}} + 1 ))",
        "echo $((2-{{X}}))",
        "n={{X}}; echo $((n + 1))",
        "for i in {{X}}; do echo $((i)); done",
        "f() { echo $(( $1 )); }; f {{X}}",
        "echo {{X}} | while read -r x; do echo $((x)); done",
        "timeout {{X}} true",
    ],
)
def test_where_a_shell_calculates_only_numbers_are_accepted(tmp_path, command):
    assert list(shell_problems(command)) == []
    for value in ("a[$(touch owned)]", "$(touch owned)", "x", "", "1 2", "0x1f"):
        with pytest.raises(StepFailed, match="must be a number at this place, got"):
            fill_shell(command, {"X": value})
    for value in (5, "5", -3):
        done = execute("bash", fill_shell(command, {"X": value}), tmp_path)
        assert done.stderr == "" or "timeout" in command


def test_values_and_the_script_stay_apart():
    script = fill_shell("echo \\{{X}} {{N}} '{{N}}' {{A.b}} {{A-b}}", {"N": [1], "A": {"b": "x y"}, "A-b": 2})
    assert script.text == 'echo {{X}} "${VALUE_N}" \'\'"${VALUE_N}"\'\' "${VALUE_A_b}" "${VALUE_A_b_2}"'
    assert script.variables == {"VALUE_N": "[1]", "VALUE_A_b": "x y", "VALUE_A_b_2": "2"}


def test_a_value_that_no_command_accepts_is_rejected():
    with pytest.raises(StepFailed, match="NUL"):
        fill_shell("echo {{X}}", {"X": "a\0b"})
    with pytest.raises(StepFailed, match="NUL"):
        fill_argv(["echo", "{{X}}"], {"X": "a\0b"})
    with pytest.raises(StepFailed, match="longer than") as long:
        fill_shell("echo {{X}}", {"X": "x" * 200_000})
    assert "standard input" in (long.value.hint or "")


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "echo {{X}}"],
        ["env", "bash", "-c", "echo {{X}}"],
        ["python3", "-c", "print('{{X}}')"],
        ["ssh", "host", "{{X}}"],
    ],
)
def test_without_a_shell_a_value_is_no_program_text_either(argv):
    [problem] = argv_problems(argv)
    assert argv[-1] in problem
    with pytest.raises(StepFailed, match=r"program text|a shell executes"):
        fill_argv(argv, {"X": "x"})


def test_without_a_shell_each_part_is_one_argument():
    assert list(argv_problems(["sh", "-c", 'echo "$1"', "sh", "{{X}}"])) == []
    assert list(argv_problems(["{{PROGRAM}}", "-c", "{{X}}"])) == []
    assert fill_argv(["echo", "{{X}}", "a{{N}}", "$HOME"], {"X": "a b; c", "N": [1]}) == [
        "echo",
        "a b; c",
        "a[1]",
        "$HOME",
    ]
