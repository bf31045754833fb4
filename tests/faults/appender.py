"""Append events until the process is killed, and write each acknowledged event to a pipe."""

from __future__ import annotations

import os
import random
from multiprocessing.connection import Connection
from pathlib import Path

from shopfloor.log import AssistantMessage, RunStarted, StepStarted, TextBlock
from shopfloor.record import Durability, Recorder


def append_until_killed(path: Path, level: Durability, seed: int, acknowledged: Connection) -> None:
    rng = random.Random(seed)
    recorder = Recorder(path, path.stem, durability=level)
    entry = recorder.append(RunStarted(name="appender", kind="command", attempt=recorder.seq + 1, host="test"))
    while True:
        os.write(acknowledged.fileno(), entry.seq.to_bytes(8, "big"))
        # Only a long line can be torn by a kill, because it is written page by page.
        size = rng.choice((10, 600, 9_000, 300_000))
        if rng.random() < 0.2:
            step = StepStarted(name="s", kind="command", try_=entry.seq)
            entry = recorder.append(step, path="s")
        else:
            block = TextBlock(fidelity="router", text=f"{entry.seq:06d}" + "x" * size)
            entry = recorder.append(AssistantMessage(blocks=[block]), path="s")
