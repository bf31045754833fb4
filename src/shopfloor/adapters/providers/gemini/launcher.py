"""How Gemini CLI is started: `gemini --output-format stream-json …`, the prompt by stdin.

What it may do. By default it may look, search the web and change files in its folder (`--approval-mode auto_edit`);
commands it may not run, because nobody is there to be asked, unless the user's own policies allow them. With
`SHOPFLOOR_AGENT_UNRESTRICTED=1` it may do everything. A list of tools, or `read_only`, is held by a policy of ours
that comes before every mode and setting, and holds for sub-agents too; then the user's own policies are left out, since
one that allows a tool would come before ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shopfloor.adapters.providers.gemini.normalizer import GeminiNormalizer
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch

UNRESTRICTED = "SHOPFLOOR_AGENT_UNRESTRICTED"
LOGIN_VARIABLES = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
READ_ONLY_TOOLS = (
    "glob",
    "grep_search",
    "list_directory",
    "read_file",
    "read_many_files",
    "google_web_search",
    "web_fetch",
    "write_todos",
    "update_topic",
    "invoke_agent",
)
"""The tools that change nothing. Sub-agents are held to the same."""

_POLICIES = Path(__file__).parent / "policies"
_USERS_OWN = "~/.gemini/policies"
"""Gemini CLI knows whose home that is. It has to be named: policies that are named stand in for it."""
_STDIN_BYTES = 8 * 1024 * 1024
"""What is longer Gemini CLI cuts off."""


class Gemini:
    name = "gemini"
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    capabilities = Capabilities(
        resume=True,
        tool_limits=True,
        read_only=True,
        deltas=True,
        usage=True,
        sub_agents=True,
        web_search=True,
    )

    def __init__(self, policies: Path = _POLICIES) -> None:
        self._policies = policies
        """The folder of ours that Gemini CLI reads its limits from."""

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        for key in LOGIN_VARIABLES:
            if env.get(key, "").strip():
                return key
        file = Path(env.get("GEMINI_CLI_HOME") or home) / ".gemini" / "oauth_creds.json"
        return str(file) if file.is_file() else None

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        if request.max_turns is not None:
            raise UnsupportedOption(
                "gemini takes no limit of turns on its command line",
                hint="set model.maxSessionTurns in its settings.json, or a budget",
            )
        argv = [self.program, "--output-format", "stream-json", *_access(request, env, self._policies)]
        if request.model is not None:
            argv.append(f"--model={request.model}")
        argv.append(f"--session-id={request.session_id}" if request.resume is None else f"--resume={request.resume}")
        return Launch(
            argv=argv,
            # In a folder that it does not trust it does not start when nobody can be asked.
            env={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
            stdin=_said(request),
            session_id=request.resume or request.session_id,
            access_mode="api" if any(env.get(key, "").strip() for key in LOGIN_VARIABLES) else "subscription",
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> GeminiNormalizer:
        """Whether it is resumed makes no difference: its numbers are those of the process."""
        return GeminiNormalizer()

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Its stream tells it."""
        return None


def _said(request: AgentRequest) -> bytes:
    """It has no option for a system prompt beside its own, so that goes before the prompt."""
    parts = [request.prompt] if request.system_prompt is None else [request.system_prompt, request.prompt]
    said = "\n\n".join(parts).encode(errors="replace")
    if len(said) > _STDIN_BYTES:
        raise UnsupportedOption("gemini takes a prompt of 8 MiB at most", hint="put the rest into a file")
    return said


def _access(request: AgentRequest, env: Mapping[str, str], policies: Path) -> list[str]:
    if request.tools is not None or request.read_only:
        named = READ_ONLY_TOOLS if request.tools is None else request.tools
        allowed = [tool for tool in named if tool in READ_ONLY_TOOLS or not request.read_only]
        if "invoke_agent" in allowed:
            # By this a sub-agent gives its answer; it does nothing else.
            allowed.append("complete_task")
        mode = "default" if request.read_only else "auto_edit"
        # Without any name the user's settings would be asked which tools are allowed.
        only = _policy(policies / "only_named.toml")
        return ["--approval-mode", mode, only, f"--allowed-tools={','.join(allowed) or 'none'}"]
    if env.get(UNRESTRICTED) == "1":
        return ["--approval-mode", "yolo"]
    return ["--approval-mode", "auto_edit", _policy(policies / "same_mode.toml"), f"--policy={_USERS_OWN}"]


def _policy(path: Path) -> str:
    """One that is not there, or whose path is taken for two, Gemini CLI would pass over without a word."""
    if not path.is_file() or "," in str(path):
        raise UnsupportedOption(
            f"gemini cannot be held to a policy in {path}", hint="install shopfloor in a folder without a comma"
        )
    return f"--policy={path}"
