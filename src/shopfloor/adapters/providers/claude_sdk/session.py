"""The session process: `python -P -m shopfloor.adapters.providers.claude_sdk.session`, with its request on stdin.

Its stdout is Claude Code's stream of JSON lines, and requests for permission, whose answers it reads from stdin. Output
of a worker's own tools goes to stderr.
"""

from __future__ import annotations

import os
import signal
import sys

from shopfloor.adapters.providers.claude_sdk.launcher import SDK_MISSING_EXIT_CODE, SessionRequest
from shopfloor.decoding import decode_json


def main() -> int:
    """Run the session that stdin requests and return the exit code."""
    # Die at once, without a traceback: a stop goes to the whole process group.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Answers to requests for permission follow in later lines, once the session asks.
    session = decode_json(sys.stdin.buffer.readline(), SessionRequest)
    sys.path += [entry for entry in session.path if entry not in sys.path]
    try:
        from shopfloor.adapters.providers.claude_sdk.conversation import run_session
    except ImportError as error:
        return _report_import_error(error)
    return run_session(session, stream)


def _report_import_error(error: ImportError) -> int:
    missing = isinstance(error, ModuleNotFoundError) and error.name == "claude_agent_sdk"
    problem = "is not installed" if missing else f"cannot be used ({error})"
    sys.stderr.write(f"claude-agent-sdk {problem}: install Shopfloor with its extra `claude`\n")
    return SDK_MISSING_EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
