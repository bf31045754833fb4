"""`shopfloor workers`: listing, showing, checking and making workers, with the installed command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

EXAMPLES = ["file-report", "hello", "repo-report", "research-assistant"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir()
    return folder


def test_list_shows_the_origin_of_each_worker(shopfloor, here):
    shopfloor("workers", "new", "mine", cwd=here)
    done = shopfloor("workers", "list", cwd=here)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == [*EXAMPLES[:2], "mine", *EXAMPLES[2:], "5"]
    assert lines[1][:4] == ["hello", "yaml", "packaged", "Greets"]
    assert lines[2][:3] == ["mine", "yaml", "workers/mine"]


def test_list_has_json_for_programs(shopfloor, here):
    found = json.loads(shopfloor("workers", "list", "--json", cwd=here).stdout)
    assert [worker["slug"] for worker in found] == EXAMPLES
    assert found[1]["input_schema"]["required"] == ["NAME"]
    assert found[3]["tools"] == ["web-search"]


def test_a_broken_worker_does_not_hide_the_others(shopfloor, here):
    (here / "workers" / "bad").mkdir(parents=True)
    (here / "workers" / "bad" / "worker.yaml").write_text("steps: 3\n")
    done = shopfloor("workers", "list", cwd=here)
    assert done.returncode == 0
    assert "broken: `steps` must be a mapping" in done.stdout
    assert "5 workers; 1 with errors: `shopfloor workers check` lists them" in done.stdout
    shown = shopfloor("workers", "show", "bad", cwd=here)
    assert shown.returncode == 2
    assert shown.stderr.startswith("error[invalid_worker]: ")
    assert "hint: shopfloor workers check " in shown.stderr


def test_show_prints_the_inputs_and_steps_of_a_worker(shopfloor, here):
    shown = shopfloor("workers", "show", "repo-report", cwd=here).stdout
    assert '  FILES  array, default ["README.md"' in shown
    assert "  ├─ Look around [parallel]\n  │  ├─ Folder\n  │  │  └─ List files [command]" in shown
    assert "  │  └─ Report on it [run-worker] worker file-report · output REPORT" in shown
    research = shopfloor("workers", "show", "research-assistant", cwd=here).stdout
    assert "  TOPIC  string, required  What to find out about" in research
    assert "(executed by the client)" in research
    whole = json.loads(shopfloor("workers", "show", "hello", "--json", cwd=here).stdout)
    assert whole["steps"]["Greet"]["block"] == "next-message"


@pytest.mark.req("SDK-30")
def test_show_of_a_missing_worker_suggests_a_name(shopfloor, here):
    done = shopfloor("workers", "show", "helo", cwd=here)
    assert done.returncode == 4
    assert done.stderr == (
        "error[not_found_error]: there is no worker `helo`\n"
        "hint: did you mean `hello`? available workers: file-report, hello, repo-report, research-assistant\n"
    )


def test_check_reports_file_line_and_reason(shopfloor, here):
    folder = here / "workers" / "bad"
    (folder / "prompts").mkdir(parents=True)
    (folder / "worker.yaml").write_text(
        "steps:\n  A: {block: start-thread, model: script/hello, system: hi}\n  B: {block: run-worker, worker: nobody}\n"
    )
    (folder / "prompts" / "hi.md").write_text("one\n{{TWO}}\n")
    expected = [
        "workers/bad/prompts/hi.md:2: `{{TWO}}` is not defined; there are none",
        "workers/bad/worker.yaml:3: there is no worker `nobody`; there are `anthropic`, `bad`, `claude-code`, `claude-sdk`, `codex`, `copilot`, `file-report`, `gemini`, `hello`, `openai`, `opencode`, `repo-report`, `research-assistant`",
    ]
    for words in ([], ["bad"], ["./workers/bad"], ["workers/bad/worker.yaml"]):
        done = shopfloor("workers", "check", *words, cwd=here)
        assert (done.returncode, done.stdout.splitlines(), done.stderr) == (1, expected, "")
    assert shopfloor("workers", "check", ".", cwd=folder).returncode == 1


def test_check_reports_how_many_workers_are_fine(shopfloor, here):
    assert shopfloor("workers", "check", cwd=here).stdout == "4 workers are fine\n"
    assert shopfloor("workers", "check", "hello", cwd=here).stdout == "1 worker is fine\n"
    assert shopfloor("workers", "check", "helo", cwd=here).returncode == 4
    assert shopfloor("workers", "check", "./no-folder", cwd=here).returncode == 4


@pytest.mark.parametrize("words", [[], ["--python"]])
def test_new_creates_a_worker_that_passes_the_check(shopfloor, here, words):
    made = shopfloor("workers", "new", "find-sources", *words, cwd=here)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-1] == "try it: shopfloor run find-sources -i NAME=Ada"
    checked = shopfloor("workers", "check", "find-sources", cwd=here)
    assert (checked.returncode, checked.stdout) == (0, "1 worker is fine\n")
    assert "NAME  string, required" in shopfloor("workers", "show", "find-sources", cwd=here).stdout


def test_new_overwrites_no_file(shopfloor, here):
    assert shopfloor("workers", "new", "mine", "--in", "team", cwd=here).stdout.endswith("-i NAME=Ada --workers team\n")
    (here / "team" / "mine" / "worker.yaml").write_text("own work")
    again = shopfloor("workers", "new", "mine", "--in", "team", cwd=here)
    assert again.returncode == 5
    assert (here / "team" / "mine" / "worker.yaml").read_text() == "own work"
    assert shopfloor("workers", "new", "Not A Slug", cwd=here).returncode == 2


def test_workers_are_found_in_the_folders_of_the_option_workers(shopfloor, here):
    shopfloor("workers", "new", "mine", "--in", "team", cwd=here)
    (here / "own.py").write_text("from shopfloor.engine.workers import worker\n\n@worker\nasync def own(run): ...\n")
    done = shopfloor("workers", "list", "--workers", "team", "--workers", "own.py", "--json", cwd=here)
    found = {worker["slug"]: worker["type"] for worker in json.loads(done.stdout)}
    assert (found["mine"], found["own"]) == ("yaml", "python")
    assert shopfloor("workers", "list", "--workers", "no/such", cwd=here).returncode == 4
    assert shopfloor("workers", "list", "--workers", "no_such_module", cwd=here).returncode == 2


def test_the_option_storage_is_accepted_before_and_after_the_command(shopfloor, here, tmp_path):
    (tmp_path / "place" / "workers" / "beside").mkdir(parents=True)
    (tmp_path / "place" / "workers" / "beside" / "worker.yaml").write_text(
        "steps: {A: {block: command, command: ls}}\n"
    )
    storage = str(tmp_path / "place" / "storage")
    for words in (["--storage", storage, "list"], ["list", "--storage", storage]):
        assert "beside" in shopfloor("workers", *words, cwd=here).stdout
