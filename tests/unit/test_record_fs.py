"""The file system under the record: durable names in folders, and private files."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shopfloor.record.fs import DirectorySync, directory_sync, open_for_append


def test_a_folder_is_synced_once_for_all_existing_names(tmp_path: Path):
    folder = tmp_path / "transcripts"
    folder.mkdir()
    names = DirectorySync(str(folder))
    first, second = names.ticket(), names.ticket()
    names.sync(first)
    late = names.ticket()
    folder.rmdir()  # from now on every sync fails
    names.sync(second)
    with pytest.raises(FileNotFoundError):
        names.sync(late)


def test_a_name_is_not_durable_if_the_folder_could_not_be_synced(tmp_path: Path):
    folder = tmp_path / "transcripts"
    names = DirectorySync(str(folder))
    ticket = names.ticket()
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            names.sync(ticket)
    folder.mkdir()
    names.sync(ticket)


def test_many_threads_get_their_names_safe(tmp_path: Path):
    names = DirectorySync(str(tmp_path))

    def make(number: int) -> None:
        for one in range(20):
            (tmp_path / f"{number}-{one}").touch()
            names.sync(names.ticket())

    with ThreadPoolExecutor(8) as threads:
        made = [threads.submit(make, number) for number in range(8)]
    for one in made:
        one.result()
    assert len(os.listdir(tmp_path)) == 160


def test_a_folder_has_one_name_registry(tmp_path: Path):
    assert directory_sync(str(tmp_path)) is directory_sync(str(tmp_path))
    assert directory_sync(str(tmp_path)) is not directory_sync(str(tmp_path / "other"))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_a_file_is_private_independent_of_the_umask(tmp_path: Path, umask: int):
    before = os.umask(umask)
    try:
        os.close(open_for_append(tmp_path / "file"))
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_file_that_others_could_read_is_ours_alone_from_then_on(tmp_path: Path):
    (tmp_path / "file").touch(mode=0o644)
    os.close(open_for_append(tmp_path / "file"))
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_is_not_there_is_made(tmp_path: Path):
    os.close(open_for_append(tmp_path / "one" / "two" / "file"))
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o700
