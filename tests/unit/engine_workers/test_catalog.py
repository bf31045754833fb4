"""Finding workers: in folders, files, modules and packages."""

import os
from pathlib import Path
from textwrap import dedent

import pytest

from shopfloor.engine.workers import EXAMPLE_WORKERS, WorkerCatalog, check_worker, default_folders
from shopfloor.errors import InvalidWorker, WorkerNotFound
from shopfloor.wiring import local_validation_context

YAML = "description: {}\nsteps: {{A: {{block: command, command: ls}}}}\n"
PYTHON = """
from shopfloor.engine.workers import worker

@worker(slug="{slug}", description="{description}")
async def work(run, NAME: str):
    return NAME
"""


def yaml_worker(folder: Path, slug: str, description: str = "x") -> Path:
    (folder / slug).mkdir(parents=True, exist_ok=True)
    (folder / slug / "worker.yaml").write_text(YAML.format(description))
    return folder / slug


def python_file(path: Path, slug: str, description: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PYTHON.format(slug=slug, description=description))
    return path


def slugs(catalog: WorkerCatalog) -> list[str]:
    return [worker.definition.slug for worker in catalog.all()]


def test_the_first_folder_that_has_a_worker_wins(tmp_path):
    yaml_worker(tmp_path / "one", "mine", "first")
    yaml_worker(tmp_path / "two", "mine", "second")
    yaml_worker(tmp_path / "two", "other")
    catalog = WorkerCatalog([tmp_path / "none", tmp_path / "one", tmp_path / "two"])
    assert slugs(catalog) == ["mine", "other"]
    found = catalog.get("mine")
    assert found.definition.description == "first"
    assert found.folder == tmp_path / "one" / "mine"
    assert found.function is None


@pytest.mark.req("SDK-30")
def test_an_unknown_worker_is_reported_with_the_available_ones(tmp_path):
    yaml_worker(tmp_path, "research")
    yaml_worker(tmp_path, "summary")
    with pytest.raises(WorkerNotFound) as caught:
        WorkerCatalog([tmp_path]).get("reserch")
    assert caught.value.code == "not_found_error"
    assert caught.value.message == "there is no worker `reserch`"
    assert caught.value.hint == "did you mean `research`? available workers: research, summary"
    with pytest.raises(WorkerNotFound):
        WorkerCatalog([tmp_path]).get("../research")


def test_a_broken_worker_is_listed_and_fails_only_when_it_is_requested(tmp_path):
    yaml_worker(tmp_path, "fine")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "worker.yaml").write_text("steps: 3")
    python_file(tmp_path / "crash" / "worker.py", "crash").write_text("1 / 0")
    (tmp_path / "no-worker").mkdir()
    (tmp_path / ".hidden").mkdir()
    catalog = WorkerCatalog([tmp_path])
    assert slugs(catalog) == ["broken", "crash", "fine"]
    assert catalog.get("fine").problems == ()
    for slug, message in (("broken", "worker.yaml:1: `steps` must be a mapping"), ("crash", "ZeroDivisionError")):
        with pytest.raises(InvalidWorker, match=message):
            catalog.get(slug)


def test_only_changed_files_are_read_again(tmp_path):
    folder = yaml_worker(tmp_path, "mine", "before")
    catalog = WorkerCatalog([tmp_path])
    first = catalog.get("mine")
    assert catalog.get("mine") is first
    yaml_worker(tmp_path, "mine", "after it")
    assert catalog.get("mine").definition.description == "after it"
    (folder / "prompts").mkdir()
    (folder / "prompts" / "hi.md").write_text("one")
    assert catalog.get("mine").definition.prompts == {"hi": "one"}
    (folder / "prompts" / "hi.md").write_text("two")
    os.utime(folder / "prompts" / "hi.md", ns=(1, 1))
    assert catalog.get("mine").definition.prompts == {"hi": "two"}
    (folder / "worker.yaml").unlink()
    with pytest.raises(WorkerNotFound):
        catalog.get("mine")


def settle(folder: Path) -> None:
    """Set the times of everything in a folder to a time long ago."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (1_000_000_000, 1_000_000_000), follow_symlinks=False)


def test_files_with_old_times_are_read_again_when_they_change(tmp_path):
    folder = yaml_worker(tmp_path, "mine", "before")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "hi.md").write_text("one")
    settle(folder)
    catalog = WorkerCatalog([tmp_path])
    first = catalog.get("mine")
    assert catalog.get("mine") is first
    yaml_worker(tmp_path, "mine", "after")
    assert catalog.get("mine").definition.description == "after"
    settle(folder)
    assert catalog.get("mine").definition.prompts == {"hi": "one"}
    (folder / "prompts" / "hi.md").write_text("two")
    assert catalog.get("mine").definition.prompts == {"hi": "two"}
    settle(folder)
    assert catalog.get("mine").definition.prompts == {"hi": "two"}
    (folder / "prompts" / "more.md").write_text("three")
    assert catalog.get("mine").definition.prompts == {"hi": "two", "more": "three"}
    settle(folder)
    assert catalog.get("mine").definition.prompts == {"hi": "two", "more": "three"}
    (folder / "worker.yaml").unlink()
    with pytest.raises(WorkerNotFound):
        catalog.get("mine")


def test_a_link_becomes_a_worker_when_its_target_is_created(tmp_path):
    (tmp_path / "workers" / "mine").mkdir(parents=True)
    (tmp_path / "workers" / "mine" / "worker.yaml").symlink_to(tmp_path / "kept.yaml")
    settle(tmp_path / "workers")
    catalog = WorkerCatalog([tmp_path / "workers"])
    for _ in range(2):
        with pytest.raises(InvalidWorker):
            catalog.get("mine")
    (tmp_path / "kept.yaml").write_text(YAML.format("here"))
    assert catalog.get("mine").definition.description == "here"


def test_a_folder_may_contain_a_worker_in_python(tmp_path):
    python_file(tmp_path / "greet" / "worker.py", "greet", "before")
    catalog = WorkerCatalog([tmp_path])
    first = catalog.get("greet")
    assert first.function is not None
    assert first.definition.input.keys() == {"NAME"}
    python_file(tmp_path / "greet" / "worker.py", "greet", "after it")
    again = catalog.get("greet")
    assert again.definition.description == "after it"
    assert again.hash != first.hash
    assert again.definition.function == first.definition.function


def test_a_python_file_whose_worker_has_another_slug_is_broken(tmp_path):
    python_file(tmp_path / "greet" / "worker.py", "other")
    python_file(tmp_path / "empty" / "worker.py", "empty").write_text("x = 1")
    catalog = WorkerCatalog([tmp_path])
    with pytest.raises(InvalidWorker, match="the slug of the worker is `other`, but its folder is `greet`"):
        catalog.get("greet")
    with pytest.raises(InvalidWorker, match="there is no function with @worker"):
        catalog.get("empty")


def test_named_modules_and_files_come_first(tmp_path, monkeypatch):
    yaml_worker(tmp_path / "workers", "mine", "of the folder")
    file = python_file(tmp_path / "file.py", "mine", "of the file")
    python_file(tmp_path / "some_module_of_workers.py", "third")
    monkeypatch.syspath_prepend(str(tmp_path))
    catalog = WorkerCatalog([tmp_path / "workers"], [str(file), "some_module_of_workers"])
    assert slugs(catalog) == ["mine", "third"]
    assert catalog.get("mine").definition.description == "of the file"
    assert catalog.get("third").origin == "some_module_of_workers"
    file.write_text("1 / 0")
    assert slugs(catalog) == ["mine", "third"]
    with pytest.raises(InvalidWorker, match="ZeroDivisionError"):
        catalog.get("mine")


@pytest.mark.parametrize("name", ["no_such_module", "no/such/file.py", "json"])
def test_a_named_module_without_workers_is_an_error_at_once(name):
    with pytest.raises(InvalidWorker):
        WorkerCatalog([], [name])


def test_workers_of_installed_packages_are_found(tmp_path, monkeypatch):
    python_file(tmp_path / "packaged_workers.py", "packaged")
    info = tmp_path / "packaged_workers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: packaged-workers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        dedent(
            """\
            [shopfloor.workers]
            packaged = packaged_workers:work
            whole = packaged_workers
            gone = packaged_workers:gone
            wrong = packaged_workers:__name__
            """
        )
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    catalog = WorkerCatalog([])
    assert slugs(catalog) == ["gone", "packaged", "wrong"]
    assert catalog.get("packaged").origin == "package packaged_workers:work"
    for slug in ("gone", "wrong"):
        with pytest.raises(InvalidWorker):
            catalog.get(slug)


def test_workers_are_searched_here_then_beside_the_storage_then_among_the_examples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here, beside = tmp_path / "workers", tmp_path / "data" / "workers"
    assert default_folders(tmp_path / "data" / "storage") == [here, beside, EXAMPLE_WORKERS]
    assert default_folders(tmp_path / "data" / "storage", [tmp_path / "own"])[0] == tmp_path / "own"


@pytest.mark.parametrize("slug", ["file-report", "hello", "repo-report", "research-assistant"])
def test_the_packaged_workers_have_no_problems(slug):
    assert check_worker(EXAMPLE_WORKERS / slug, local_validation_context(WorkerCatalog([EXAMPLE_WORKERS]).all())) == []
    assert WorkerCatalog([EXAMPLE_WORKERS]).get(slug).definition.description
