"""The storage folder, and finding a run by the text that a person enters."""

import os
import time
from pathlib import Path

import pytest
from tests.sample_events import CHILD_ID, PARENT_ID, RUN_ID, assistant_message, line_of, started

from shopfloor.errors import AmbiguousRun, InvalidRunId, RunNotFound
from shopfloor.log import encode, format_timestamp, new_run_id
from shopfloor.record import Recorder, Storage

A1 = "aaaa1111-0000-4000-8000-000000000001"
A2 = "aaaa2222-0000-4000-8000-000000000002"
B1 = "bbbb1111-0000-4000-8000-000000000003"

NOON = 1_700_000_000_000


def keep(storage: Storage, run_id: str, *, began: int = 0, wrote: int | None = None, parent: str | None = None) -> None:
    """Write a log that started `began` ms and was last written `wrote` ms after noon."""
    path = storage.log_path(run_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    line = line_of(started(), run_id=run_id, parent_run_id=parent, timestamp=format_timestamp(NOON + began))
    path.write_bytes(encode(line) + b"\n")
    at = (NOON + (began if wrote is None else wrote)) * 1_000_000
    os.utime(path, ns=(at, at))


@pytest.mark.req("TR-1", "TR-7")
def test_a_log_lies_in_transcripts_under_the_id_of_its_run(storage: Storage) -> None:
    assert storage.log_path(RUN_ID) == storage.root / "transcripts" / f"{RUN_ID}.jsonl"


def test_the_storage_folder_is_the_one_that_the_environment_names(storage: Storage, tmp_path: Path) -> None:
    assert Storage.default().root == storage.root == tmp_path / "storage"


def test_a_relative_storage_folder_does_not_move_with_the_working_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHOPFLOOR_STORAGE", "here")
    assert Storage.default().root == tmp_path / "here"


def test_a_tilde_in_the_storage_folder_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHOPFLOOR_STORAGE", "~/kept")
    assert Storage.default().root == tmp_path / "kept"


def test_without_the_environment_the_storage_is_in_the_data_folder_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SHOPFLOOR_STORAGE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    root = Storage.default().root
    assert root.is_relative_to(tmp_path)
    assert root.parts[-2:] == ("shopfloor", "storage")


def test_a_run_is_found_by_its_id_or_by_its_first_characters(storage: Storage) -> None:
    for run_id in (A1, A2, B1):
        keep(storage, run_id)
    runs_by_prefix = {A1: A1, "aaaa1": A1, "aaaa2222-": A2, "b": B1, "BBBB": B1, A2.upper(): A2}
    assert {prefix: storage.find(prefix) for prefix in runs_by_prefix} == runs_by_prefix


def test_the_first_characters_of_several_runs_are_ambiguous(storage: Storage) -> None:
    for run_id in (A1, A2, B1):
        keep(storage, run_id)
    with pytest.raises(AmbiguousRun, match="2 runs begin with 'aaaa'") as refused:
        storage.find("aaaa")
    assert "aaaa1111" in refused.value.message
    assert "aaaa2222" in refused.value.message
    assert refused.value.hint


@pytest.mark.parametrize("unknown", ["c", A2, "aaaa11112", RUN_ID])
def test_an_unknown_run_is_reported(storage: Storage, unknown: str) -> None:
    keep(storage, A1)
    with pytest.raises(RunNotFound, match="no run begins with"):
        storage.find(unknown)


@pytest.mark.parametrize(
    "crooked",
    [
        "",
        "../x",
        "..",
        "/",
        "/etc/passwd",
        "a/../../b",
        "a*",
        "[a]",
        "a\0",
        "aaaa1111\n",
        f"{A1}.jsonl",
        "-a",
        "x",
        "é",
    ],
)
def test_text_that_is_no_prefix_of_an_id_names_no_run(storage: Storage, crooked: str) -> None:
    keep(storage, A1)
    with pytest.raises(RunNotFound, match="does not name a run"):
        storage.find(crooked)


@pytest.mark.parametrize("crooked", ["../x", "..", "", "/etc/passwd", f"../{RUN_ID}", f"{RUN_ID}/../x", RUN_ID + "\n"])
def test_no_path_is_made_of_anything_but_a_run_id(storage: Storage, crooked: str) -> None:
    with pytest.raises(InvalidRunId):
        storage.log_path(crooked)


def test_only_logs_are_runs(storage: Storage) -> None:
    keep(storage, A1)
    for name in (f"{A2}.torn", f"{A2}.torn-2", "notes.jsonl", f"{B1}.jsonl.gz", f"{B1.upper()}.jsonl", ".jsonl"):
        (storage.transcripts / name).write_text("x")
    assert list(storage.run_ids()) == [A1]


def test_a_storage_that_is_not_there_yet_has_no_runs(storage: Storage) -> None:
    assert list(storage.run_ids()) == []
    with pytest.raises(RunNotFound, match="there are no runs") as refused:
        storage.find("last")
    assert refused.value.hint
    with pytest.raises(RunNotFound):
        storage.find("a")


def test_the_last_run_is_the_run_that_started_last(storage: Storage) -> None:
    keep(storage, A1, began=0, wrote=90_000)
    keep(storage, A2, began=5_000, wrote=6_000)
    keep(storage, B1, began=1_000, wrote=7_000)
    assert storage.find("last") == A2


def test_the_last_run_is_no_sub_run(storage: Storage) -> None:
    keep(storage, PARENT_ID, began=0, wrote=60_000)
    keep(storage, CHILD_ID, began=10_000, wrote=50_000, parent=PARENT_ID)
    assert storage.find("last") == PARENT_ID


def test_with_only_sub_runs_there_is_no_last_run(storage: Storage) -> None:
    keep(storage, CHILD_ID, parent=PARENT_ID)
    with pytest.raises(RunNotFound):
        storage.find("last")


def test_the_last_run_is_found_among_runs_that_are_being_recorded(storage: Storage) -> None:
    recorders = [Recorder(storage.log_path(run_id), run_id) for run_id in (new_run_id() for _ in range(5))]
    for recorder in recorders:
        recorder.append(started())
        time.sleep(0.002)
    for recorder in reversed(recorders):
        recorder.append(assistant_message("x"), path="a")
        recorder.close()
    assert storage.find("last") == recorders[-1].run_id


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"oops\n", b'{"seq":1,"type":"run.started"}\n', b'{"seq":1'])
def test_a_file_that_is_no_log_does_not_hide_the_last_run(storage: Storage, content: bytes) -> None:
    keep(storage, A1)
    storage.log_path(B1).write_bytes(content)
    assert storage.find("last") == A1


def test_a_log_that_is_deleted_during_the_search_for_the_last_run_is_skipped(storage: Storage) -> None:
    """A broken link is listed and cannot be opened, like a file that was deleted in between."""
    keep(storage, A1)
    storage.log_path(B1).symlink_to(storage.root / "nowhere")
    assert storage.find("last") == A1
