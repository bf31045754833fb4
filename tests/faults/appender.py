"""Appends events until it is killed, and says after each on stdout which one is acknowledged."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from shopfloor.log import AssistantMessage, RunStarted, StepStarted, TextBlock
from shopfloor.record import Durability, Recorder

path, level, seed = Path(sys.argv[1]), Durability(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)
recorder = Recorder(path, path.stem, durability=level)
entry = recorder.append(RunStarted(name="appender", kind="command", attempt=recorder.seq + 1, host="test"))
while True:
    os.write(1, entry.seq.to_bytes(8, "big"))
    # Long lines are what a kill can tear: they are written page by page.
    size = dice.choice((10, 600, 9_000, 300_000))
    if dice.random() < 0.2:
        step = StepStarted(name="s", kind="command", try_=entry.seq)
        entry = recorder.append(step, path="s")
    else:
        block = TextBlock(fidelity="router", text=f"{entry.seq:06d}" + "x" * size)
        entry = recorder.append(AssistantMessage(blocks=[block]), path="s")
