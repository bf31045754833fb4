"""How Copilot is started: `copilot --output-format=json …`, the prompt by stdin.

Nobody is there to approve anything, so every tool is approved beforehand (`--allow-all-tools`). Copilot's own fence
stays: it refuses files outside the folder it works in, and addresses on the net. `SHOPFLOOR_AGENT_UNRESTRICTED=1` takes
it away.

What an agent may use is said by `--available-tools`, for it is the one flag that holds: other tools do not exist then,
for sub-agents neither. To read only means `view`, `grep` and `glob`: with a shell it could write.

`COPILOT_PROVIDER_BASE_URL` and its siblings point Copilot to another model provider; they are handed on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shopfloor.adapters.providers.copilot.normalizer import CopilotNormalizer
from shopfloor.adapters.providers.jsonl import json_object
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch, Provider

OWN_PROVIDER = "COPILOT_PROVIDER_BASE_URL"
"""With it Copilot asks another model provider, and needs no login at GitHub."""

_TOKENS = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN")
_CLASSIC = "ghp_"
"""How tokens begin that Copilot does not take."""
_USERS = ("loggedInUsers", "lastLoggedInUser", "logged_in_users", "last_logged_in_user")


def login(env: Mapping[str, str], home: Path) -> str | None:
    if env.get(OWN_PROVIDER):
        return OWN_PROVIDER
    for name in _TOKENS:
        token = env.get(name, "").strip()
        if token and not token.startswith(_CLASSIC):
            return name
    file = Path(env.get("COPILOT_HOME") or home / ".copilot") / "config.json"
    return str(file) if _has_user(file) else None


def _has_user(file: Path) -> bool:
    """The file is there after the first start; whether somebody has logged in stands inside."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return False
    # It begins with comments, which JSON does not have.
    kept = json_object(b"\n".join(line for line in lines if not line.lstrip().startswith(b"//"))) or {}
    return any(kept.get(key) for key in _USERS)


UNRESTRICTED = "SHOPFLOOR_AGENT_UNRESTRICTED"

_LOOKING = ("view", "grep", "glob")
_NO_TOOL = "none"
"""The name of no tool: an empty list would mean all of them."""


class Copilot:
    name = "copilot"
    program = "copilot"
    install = "npm install -g @github/copilot"
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
        _check(request)
        session = request.resume if request.resume is not None else request.session_id
        argv = [self.program, "--output-format=json", "--stream=on", *_permissions(request, env)]
        argv.append(f"--resume={session}" if request.resume is not None else f"--session-id={session}")
        if request.model is not None:
            argv.append(f"--model={request.model}")
        # It has no option for instructions of one's own: they stand before the prompt.
        parts = [request.system_prompt, request.prompt] if request.system_prompt else [request.prompt]
        return Launch(
            argv=argv,
            stdin="\n\n".join(parts).encode(errors="replace"),
            session_id=session,
            access_mode="api" if env.get(OWN_PROVIDER) else "subscription",
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> CopilotNormalizer:
        return CopilotNormalizer()

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Its stream tells it."""
        return None


PROVIDER: Provider = Copilot()


def _check(request: AgentRequest) -> None:
    if request.max_turns is not None:
        raise UnsupportedOption("copilot cannot be held to a number of turns", hint="leave out the limit of turns")
    if request.max_budget_usd is not None:
        raise UnsupportedOption(
            "copilot cannot be held to a budget: it tells neither tokens nor cost", hint="leave out the budget"
        )
    if not request.prompt.strip():
        raise UnsupportedOption("copilot cannot be started without a prompt", hint="say what is to be done")


def _permissions(request: AgentRequest, env: Mapping[str, str]) -> list[str]:
    tools = request.tools
    if request.read_only:
        tools = [tool for tool in _LOOKING if tools is None or tool in tools]
    unrestricted = env.get(UNRESTRICTED) == "1" and not request.read_only
    granted = ["--allow-all" if unrestricted else "--allow-all-tools"]
    if tools is not None:
        granted.append(f"--available-tools={','.join(tools) or _NO_TOOL}")
    if request.read_only:
        # A denial is above every grant: it holds whatever a settings file allows.
        granted += ["--deny-tool=shell", "--deny-tool=write"]
    return granted
