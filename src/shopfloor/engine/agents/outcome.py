"""Whether an agent succeeded: one rule for all providers, over what each of them says of itself."""

from __future__ import annotations

import msgspec

from shopfloor.errors import AgentFailed, ExecutionCancelled
from shopfloor.log import RunError
from shopfloor.ports import AgentExit, Ended


def judge(ended: Ended, exit_: AgentExit | None) -> Ended:
    """Return the end of a session by the rule: an agent has succeeded only if it says so in its own final record, and
    neither a signal nor a non-zero exit code ended its process. Without `exit_` the final record decides.
    """
    if ended.status != "completed" or (ended.is_final and (exit_ is None or exit_.is_good)):
        return ended
    why = "the agent ended without its final record"
    if ended.is_final and exit_ is not None:
        why = f"the agent gave its answer, and its process did not end well: {exit_.description()}"
    is_cancelled = exit_ is not None and exit_.cancelled
    kind = ExecutionCancelled if is_cancelled else AgentFailed
    return msgspec.structs.replace(
        ended,
        status="cancelled" if is_cancelled else "failed",
        error=RunError(code=kind.code, message=why, retryable=kind.retryable),
        text=None,
        structured=None,
    )
