"""Fixtures that create folders of workers."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

MakeWorker = Callable[..., Path]


@pytest.fixture
def make_worker(tmp_path: Path) -> MakeWorker:
    """Return a function that creates `<slug>/worker.yaml` with prompts and returns the folder."""

    def make(text: str, slug: str = "mine", **prompts: str) -> Path:
        folder = tmp_path / "workers" / slug
        (folder / "prompts").mkdir(parents=True, exist_ok=True)
        (folder / "worker.yaml").write_text(dedent(text), encoding="utf-8")
        for name, prompt in prompts.items():
            (folder / "prompts" / f"{name}.md").write_text(prompt, encoding="utf-8")
        return folder

    return make
