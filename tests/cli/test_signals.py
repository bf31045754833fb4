"""Signals that arrive while a command ends."""

from __future__ import annotations

import subprocess
import sys

from tests.timeouts import TIMEOUT_SECONDS

ENDING = """
import os, signal
import anyio
from shopfloor.cli.shutdown import receive_signals

async def main():
    with receive_signals((signal.SIGTERM,)):
        os.kill(os.getpid(), signal.SIGTERM)
    await anyio.sleep(0.05)
    print("ended")

anyio.run(main, backend_options={"use_uvloop": True})
"""


def test_a_signal_at_the_end_of_a_command_prints_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")
