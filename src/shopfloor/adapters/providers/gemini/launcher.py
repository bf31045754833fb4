"""Start Gemini CLI: `gemini --output-format stream-json …`, with the prompt on stdin.

By default it may read, search the web and change files in its folder (`--approval-mode auto_edit`). It may run no
commands unless the user's policies allow them, because no user is present to approve them. With
`SHOPFLOOR_AGENT_UNRESTRICTED=1` it may do everything. A list of tools, or `read_only`, is enforced by a policy of
Shopfloor that takes precedence over every mode and setting, for sub-agents too. The user's policies are then left out,
since a policy that allows a tool would take precedence over it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shopfloor.adapters.providers.gemini.normalizer import GeminiNormalizer
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch

UNRESTRICTED_VARIABLE = "SHOPFLOOR_AGENT_UNRESTRICTED"
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
"""The tools that change nothing. Sub-agents get the same list."""

_POLICIES = Path(__file__).parent / "policies"
_USER_POLICIES = "~/.gemini/policies"
"""Gemini CLI expands the home folder. It must be passed, because policies on the command line replace it."""
_MAX_STDIN_BYTES = 8 * 1024 * 1024
"""Gemini CLI truncates longer input."""


class Gemini:
    """Launcher of Gemini CLI."""

    name = "gemini"
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    no_approvals_reason = "without a terminal, its tools can only be allowed or denied in advance"
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
        """The folder of Shopfloor's policies for Gemini CLI."""

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        for key in LOGIN_VARIABLES:
            if env.get(key, "").strip():
                return key
        file = Path(env.get("GEMINI_CLI_HOME") or home) / ".gemini" / "oauth_creds.json"
        return str(file) if file.is_file() else None

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        if request.max_turns is not None:
            raise UnsupportedOption(
                "gemini has no option for a limit on turns",
                hint="set model.maxSessionTurns in its settings.json, or set a budget",
            )
        argv = [self.program, "--output-format", "stream-json", *_permission_flags(request, env, self._policies)]
        if request.model is not None:
            argv.append(f"--model={request.model}")
        argv.append(f"--session-id={request.session_id}" if request.resume is None else f"--resume={request.resume}")
        return Launch(
            argv=argv,
            # Without a user to ask, it does not start in a folder that it does not trust.
            env={"GEMINI_CLI_TRUST_WORKSPACE": "true"},
            stdin=_stdin(request),
            session_id=request.resume or request.session_id,
            access_mode="api" if any(env.get(key, "").strip() for key in LOGIN_VARIABLES) else "subscription",
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> GeminiNormalizer:
        """Return a normalizer. A resumed session needs no care: its counts are those of the process."""
        return GeminiNormalizer()

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Return None: the stream names the model."""
        return None


def _stdin(request: AgentRequest) -> bytes:
    """Return the prompt. The system prompt goes before it, because Gemini CLI has no option to add one to its own."""
    parts = [request.prompt] if request.system_prompt is None else [request.system_prompt, request.prompt]
    data = "\n\n".join(parts).encode(errors="replace")
    if len(data) > _MAX_STDIN_BYTES:
        raise UnsupportedOption("the prompt is too long for gemini: more than 8 MiB", hint="put the rest into a file")
    return data


def _permission_flags(request: AgentRequest, env: Mapping[str, str], policies: Path) -> list[str]:
    if request.tools is not None or request.read_only:
        tools = READ_ONLY_TOOLS if request.tools is None else request.tools
        allowed = [tool for tool in tools if tool in READ_ONLY_TOOLS or not request.read_only]
        if "invoke_agent" in allowed:
            # A sub-agent returns its answer by this tool, which does nothing else.
            allowed.append("complete_task")
        mode = "default" if request.read_only else "auto_edit"
        # An empty list would let the user's settings decide which tools are allowed.
        policy = _policy_flag(policies / "only_named.toml")
        return ["--approval-mode", mode, policy, f"--allowed-tools={','.join(allowed) or 'none'}"]
    if env.get(UNRESTRICTED_VARIABLE) == "1":
        return ["--approval-mode", "yolo"]
    return ["--approval-mode", "auto_edit", _policy_flag(policies / "same_mode.toml"), f"--policy={_USER_POLICIES}"]


def _policy_flag(path: Path) -> str:
    """Return the flag of a policy. Gemini CLI would silently ignore a missing file, or a path with a comma."""
    if "," in str(path):
        raise UnsupportedOption(
            f"gemini cannot use the policy file {path}: its path contains a comma",
            hint="install shopfloor in a folder without a comma in its path",
        )
    if not path.is_file():
        raise UnsupportedOption(f"the policy file {path} for gemini is missing", hint="install shopfloor again")
    return f"--policy={path}"
