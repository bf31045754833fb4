"""The program of a session: `python -P -m shopfloor.adapters.providers.claude_sdk.session`, told by stdin what to do.

Its stdout is Claude Code's own stream of JSON lines, and nothing else: what a worker's own tool prints goes to stderr.
"""

from __future__ import annotations

import os
import signal
import sys

from shopfloor.adapters.providers.claude_sdk.launcher import SDK_MISSING_EXIT_CODE, SessionRequest
from shopfloor.decoding import decode_json


def main() -> int:
    # No traceback and no last words: whoever stops us stops the whole group.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    asked = decode_json(sys.stdin.buffer.read(), SessionRequest)
    sys.path += [entry for entry in asked.path if entry not in sys.path]
    try:
        from shopfloor.adapters.providers.claude_sdk.conversation import run_session
    except ImportError as error:
        return _cannot(error)
    return run_session(asked, stream)


def _cannot(error: ImportError) -> int:
    missing = isinstance(error, ModuleNotFoundError) and error.name == "claude_agent_sdk"
    why = "is not installed" if missing else f"cannot be used ({error})"
    sys.stderr.write(f"claude-agent-sdk {why}: install Shopfloor with its extra `claude`\n")
    return SDK_MISSING_EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
