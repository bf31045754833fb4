"""Start Copilot: `copilot --output-format=json …`, with the prompt on stdin.

No user is present to approve tools, so all tools are approved in advance (`--allow-all-tools`). Copilot still refuses
files outside its folder, and network addresses; `SHOPFLOOR_AGENT_UNRESTRICTED=1` lifts that.

`--available-tools` limits the tools of a run. It is the only reliable flag: other tools do not exist then, for
sub-agents either. A read-only run gets `view`, `grep` and `glob`, because a shell could write.

`COPILOT_PROVIDER_BASE_URL` and related variables point Copilot to another model provider. They are passed on unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shopfloor.adapters.providers.copilot.normalizer import CopilotNormalizer
from shopfloor.adapters.providers.jsonl import json_object
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch, Provider

PROVIDER_URL_VARIABLE = "COPILOT_PROVIDER_BASE_URL"
"""If it is set, Copilot uses another model provider and needs no GitHub login."""

_TOKEN_VARIABLES = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN")
_REJECTED_PREFIX = "ghp_"
"""Prefix of classic GitHub tokens, which Copilot rejects."""
_USER_FIELDS = ("loggedInUsers", "lastLoggedInUser", "logged_in_users", "last_logged_in_user")
UNRESTRICTED_VARIABLE = "SHOPFLOOR_AGENT_UNRESTRICTED"
_READ_TOOLS = ("view", "grep", "glob")
_NO_TOOL = "none"
"""A name that no tool has. An empty list would mean all tools."""


def login(env: Mapping[str, str], home: Path) -> str | None:
    """Return the variable or file that Copilot logs in with, by its own precedence; None without a login."""
    if env.get(PROVIDER_URL_VARIABLE):
        return PROVIDER_URL_VARIABLE
    for name in _TOKEN_VARIABLES:
        token = env.get(name, "").strip()
        if token and not token.startswith(_REJECTED_PREFIX):
            return name
    file = Path(env.get("COPILOT_HOME") or home / ".copilot") / "config.json"
    return str(file) if _has_user(file) else None


def _has_user(file: Path) -> bool:
    """Return whether a user has logged in. The file itself exists after the first start."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return False
    # The file starts with comments, which JSON does not allow.
    config = json_object(b"\n".join(line for line in lines if not line.lstrip().startswith(b"//"))) or {}
    return any(config.get(key) for key in _USER_FIELDS)


class Copilot:
    """Launcher of Copilot."""

    name = "copilot"
    program = "copilot"
    install = "npm install -g @github/copilot"
    no_approvals_reason = "without a terminal, its tools can only be allowed or denied in advance"
    capabilities = Capabilities(
        resume=True,
        tool_limits=True,
        read_only=True,
        deltas=True,
        thinking=True,
        sub_agents=True,
    )

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        return login(env, home)

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        _check_options(request)
        session = request.resume if request.resume is not None else request.session_id
        argv = [self.program, "--output-format=json", "--stream=on", *_permission_flags(request, env)]
        argv.append(f"--resume={session}" if request.resume is not None else f"--session-id={session}")
        if request.model is not None:
            argv.append(f"--model={request.model}")
        # Copilot has no option for a system prompt, so it goes before the prompt.
        parts = [request.system_prompt, request.prompt] if request.system_prompt else [request.prompt]
        return Launch(
            argv=argv,
            stdin="\n\n".join(parts).encode(errors="replace"),
            session_id=session,
            access_mode="api" if env.get(PROVIDER_URL_VARIABLE) else "subscription",
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> CopilotNormalizer:
        return CopilotNormalizer()

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Return None: the stream names the model."""
        return None


PROVIDER: Provider = Copilot()


def _check_options(request: AgentRequest) -> None:
    if request.max_turns is not None:
        raise UnsupportedOption("copilot does not support a limit on turns", hint="remove the limit on turns")
    if request.max_budget_usd is not None:
        raise UnsupportedOption(
            "copilot does not support a budget: it reports neither tokens nor costs", hint="remove the budget"
        )
    if not request.prompt.strip():
        raise UnsupportedOption("copilot cannot start without a prompt", hint="pass a prompt")


def _permission_flags(request: AgentRequest, env: Mapping[str, str]) -> list[str]:
    tools = request.tools
    if request.read_only:
        tools = [tool for tool in _READ_TOOLS if tools is None or tool in tools]
    unrestricted = env.get(UNRESTRICTED_VARIABLE) == "1" and not request.read_only
    flags = ["--allow-all" if unrestricted else "--allow-all-tools"]
    if tools is not None:
        flags.append(f"--available-tools={','.join(tools) or _NO_TOOL}")
    if request.read_only:
        # A denial takes precedence over every grant, also over those in settings files.
        flags += ["--deny-tool=shell", "--deny-tool=write"]
    return flags
