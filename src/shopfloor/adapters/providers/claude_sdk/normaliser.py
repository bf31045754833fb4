"""What a session prints: the lines of Claude Code, which runs inside it."""

from __future__ import annotations

import msgspec

from shopfloor.adapters.providers.claude.normaliser import ClaudeNormaliser
from shopfloor.adapters.providers.claude_sdk.asked import NO_PACKAGE
from shopfloor.adapters.providers.lines import only_ended
from shopfloor.adapters.providers.reading import run_error
from shopfloor.errors import AgentMissing
from shopfloor.ports import AgentExit, Report


class ClaudeSdkNormaliser(ClaudeNormaliser):
    def _end(self, ended: AgentExit | None) -> list[Report]:
        reports = super()._end(ended)
        if ended is None or ended.cancelled or ended.code != NO_PACKAGE:
            return reports
        said = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
        error = run_error(AgentMissing, said[-1] if said else "claude-agent-sdk is not installed")
        return [*reports[:-1], msgspec.structs.replace(only_ended(reports), error=error)]
