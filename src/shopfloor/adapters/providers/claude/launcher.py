"""How Claude Code is started: `claude -p --output-format=stream-json …`, the prompt by stdin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shopfloor.adapters.providers.claude.login import access_mode, login
from shopfloor.adapters.providers.claude.normaliser import ClaudeNormaliser
from shopfloor.adapters.providers.claude.permissions import permissions
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch

_ARGUMENT_BYTES = 128 * 1024 - 1
"""The longest argument that Linux takes."""
_PRINT = ("-p", "--output-format=stream-json", "--verbose", "--include-partial-messages")
_ENV = {
    "DISABLE_AUTOUPDATER": "1",  # a run shall not change the program under the next one
    # What sub-agents say. By a variable and not by its flag: versions that do not know it would refuse the flag.
    "CLAUDE_CODE_FORWARD_SUBAGENT_TEXT": "1",
}


class ClaudeCode:
    name = "claude-code"
    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    capabilities = Capabilities(
        resume=True,
        tool_limits=True,
        read_only=True,
        max_turns=True,
        max_budget=True,
        deltas=True,
        thinking=True,
        cost=True,
        usage=True,
        sub_agents=True,
        web_search=True,
    )

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        return login(env, home)

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        # A session that is resumed keeps its id; a new one gets ours, so that it is known before anything happens.
        which, session = "--resume", request.resume
        if session is None:
            which, session = "--session-id", request.session_id
        home = Path(env["HOME"]) if env.get("HOME") else Path.home()
        return Launch(
            argv=[self.program, *_PRINT, f"{which}={session}", *permissions(request, env), *_options(request)],
            env=dict(_ENV),
            stdin=request.prompt.encode(errors="replace"),
            session_id=session,
            access_mode=access_mode(env, home),
        )

    def normaliser(self, *, resumed: bool | None = None, spent_before: Usage | None = None) -> ClaudeNormaliser:
        return ClaudeNormaliser(resumed=resumed is True)

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Its stream tells it."""
        return None


def _options(request: AgentRequest) -> list[str]:
    given = {
        "--model": request.model,
        "--max-turns": request.max_turns,
        "--max-budget-usd": request.max_budget_usd,
        "--append-system-prompt": request.system_prompt,
    }
    # As one word each: a value may begin with a dash.
    options = [f"{flag}={value}" for flag, value in given.items() if value is not None]
    if any(len(option.encode(errors="replace")) > _ARGUMENT_BYTES for option in options):
        raise UnsupportedOption("the system prompt is too long for claude", hint="put it at the head of the prompt")
    return options
