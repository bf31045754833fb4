"""Where `shopfloor normalize` writes transcripts: one run to stdout, or one file per run to a folder."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from shopfloor.errors import LogExists, SeveralRuns, storage_error
from shopfloor.record import make_folder, open_for_append


class RunSink(Protocol):
    def write(self, run_id: str, line: bytes, *, is_outcome: bool) -> None:
        """Append a line to the transcript of that run. Nothing follows an outcome."""
        ...

    def flush(self) -> None: ...


class StdoutRun:
    """Stdout takes the transcript of one run: the first. Lines of its sub-agents are left out and counted."""

    def __init__(self) -> None:
        self._out = sys.stdout.buffer
        self._run_id: str | None = None
        self._omitted: set[str] = set()

    def write(self, run_id: str, line: bytes, *, is_outcome: bool) -> None:
        self._run_id = self._run_id or run_id
        if run_id == self._run_id:
            self._out.write(line + b"\n")
        else:
            self._omitted.add(run_id)

    def flush(self) -> None:
        self._out.flush()

    def check(self) -> None:
        """Raise `SeveralRuns` where runs of sub-agents were left out."""
        if self._omitted:
            runs = "1 sub-agent has" if len(self._omitted) == 1 else f"{len(self._omitted):,} sub-agents have"
            raise SeveralRuns(
                f"stdout has the transcript of run {self._run_id} only, and {runs} transcripts of their own",
                hint="`shopfloor normalize … --out DIR` writes one file per run",
            )


class RunFolder:
    """A folder with one file per run, `<run-id>.jsonl`. No file that is there is overwritten."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, BinaryIO] = {}
        self.paths: list[Path] = []
        """The files that were written, the first run's first."""

    def __enter__(self) -> Self:
        make_folder(self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as files:
            for file in self._open.values():
                files.callback(file.close)

    def write(self, run_id: str, line: bytes, *, is_outcome: bool) -> None:
        try:
            file = self._open.get(run_id) or self._new(run_id)
            file.write(line + b"\n")
            if is_outcome:
                # A stream may have many sub-agents; only those that still run hold an open file.
                self._open.pop(run_id).close()
        except OSError as error:
            raise storage_error(error, f"cannot write {self._folder}/{run_id}.jsonl") from error

    def _new(self, run_id: str) -> BinaryIO:
        path = self._folder / f"{run_id}.jsonl"
        try:
            descriptor = open_for_append(path, new=True)
        except FileExistsError:
            raise LogExists(
                f"{path} exists already", hint="remove it, or name another folder; the same stream gives the same ids"
            ) from None
        file = self._open[run_id] = os.fdopen(descriptor, "ab")
        self.paths.append(path)
        return file

    def flush(self) -> None:
        try:
            for file in self._open.values():
                file.flush()
        except OSError as error:
            raise storage_error(error, f"cannot write to {self._folder}") from error
