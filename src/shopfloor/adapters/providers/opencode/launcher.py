"""Start OpenCode: `opencode run --format json …`, with the prompt on stdin (OpenCode would quote it as an argument).

By default OpenCode may do what the user's configuration allows (its own default: everything in its folder, commands
included). It refuses what it would have to ask for, and continues. With `SHOPFLOOR_AGENT_UNRESTRICTED=1` such requests
are approved (`--auto`); what is denied stays denied. A list of tools, or `read_only`, is enforced by an agent that
`OPENCODE_CONFIG_CONTENT` defines: the rules of an agent come after all other rules, and the last rule decides.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shopfloor.adapters.providers.json_access import Record, record_at
from shopfloor.adapters.providers.jsonl import json_object
from shopfloor.adapters.providers.opencode.normalizer import OpenCodeNormalizer
from shopfloor.errors import UnsupportedOption
from shopfloor.log import Usage
from shopfloor.ports import AgentRequest, Capabilities, Launch

UNRESTRICTED_VARIABLE = "SHOPFLOOR_AGENT_UNRESTRICTED"
CONFIG_VARIABLE = "OPENCODE_CONFIG_CONTENT"
LOGIN_VARIABLES = (
    "OPENCODE_API_KEY",
    "OPENCODE_AUTH_CONTENT",
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "OPENROUTER_API_KEY",
    "DEEPSEEK_API_KEY",
    "GROQ_API_KEY",
    "MISTRAL_API_KEY",
    "XAI_API_KEY",
)
READ_ONLY_TOOLS = ("read", "glob", "grep", "list", "lsp", "webfetch", "websearch", "codesearch", "todowrite", "skill")
"""The tools that change nothing."""
LIMITED_AGENT = "shopfloor-limited"

_EDIT_TOOLS = frozenset({"edit", "write", "apply_patch"})
"""One tool by OpenCode's permission rules."""
_READ_RULES = {"*": "allow", "*.env": "deny", "*.env.*": "deny", "*.env.example": "allow"}
"""Rules for files. Reading files with secrets would need an approval, and no user is present to give it."""


class OpenCode:
    """Launcher of OpenCode."""

    name = "opencode"
    program = "opencode"
    install = "npm install -g opencode-ai"
    no_approvals_reason = "without a terminal, its tools can only be allowed or denied in advance"
    capabilities = Capabilities(
        resume=True,
        tool_limits=True,
        read_only=True,
        thinking=True,
        cost=True,
        usage=True,
        sub_agents=True,
    )

    def login(self, env: Mapping[str, str], home: Path) -> str | None:
        config = _parse_config(env) or {}
        providers = record_at(config, "provider")
        if any(record_at(record_at(providers, name), "options").get("apiKey") for name in providers):
            return CONFIG_VARIABLE
        for key in LOGIN_VARIABLES:
            if env.get(key, "").strip():
                return key
        file = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode" / "auth.json"
        return str(file) if file.is_file() else None

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        _check_options(request)
        # Without `--dir` it works in the folder of the variable `PWD`, which is that of the parent process.
        argv = [self.program, "run", "--format", "json", "--thinking", f"--dir={request.cwd}"]
        allowed = _allowed_tools(request)
        if allowed is not None:
            argv += ["--agent", LIMITED_AGENT]
        if env.get(UNRESTRICTED_VARIABLE) == "1":
            argv.append("--auto")
        if request.model is not None:
            argv.append(f"--model={request.model}")
        if request.resume is not None:
            argv.append(f"--session={request.resume}")
        else:
            # Without a title OpenCode asks a model for one, at a cost that it does not report.
            argv.append(f"--title=shopfloor {request.session_id[:8]}")
        # OpenCode has no option to add to its system prompt, so the system prompt goes before the prompt.
        parts = [request.prompt] if request.system_prompt is None else [request.system_prompt, request.prompt]
        return Launch(
            argv=argv,
            env=_environment(env, allowed),
            stdin="\n\n".join(parts).encode(errors="replace"),
            session_id=request.resume,
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> OpenCodeNormalizer:
        """Return a normalizer. A resumed session needs no care: its counts are those of each step."""
        return OpenCodeNormalizer()

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """Return None: OpenCode keeps the model in its own database."""
        return None


def _check_options(request: AgentRequest) -> None:
    if request.max_turns is not None:
        raise UnsupportedOption("opencode does not support a limit on turns", hint="set a budget instead")
    if request.model is not None and not all(request.model.partition("/")):
        raise UnsupportedOption(
            f"invalid model for opencode: {request.model!r} has no provider", hint="write it as provider/model"
        )


def _allowed_tools(request: AgentRequest) -> list[str] | None:
    """Return the only tools that a run may use; None if it may use all."""
    if request.tools is None:
        return list(READ_ONLY_TOOLS) if request.read_only else None
    tools = [tool for tool in request.tools if tool in READ_ONLY_TOOLS or not request.read_only]
    if "task" in tools:
        raise UnsupportedOption(
            "opencode's sub-agents ignore the list of allowed tools", hint="remove `task` from the list"
        )
    if not _EDIT_TOOLS.isdisjoint(tools) and not _EDIT_TOOLS.issubset(tools):
        raise UnsupportedOption(
            "opencode has one permission for all its editing tools",
            hint=f"list all of {', '.join(sorted(_EDIT_TOOLS))}, or none of them",
        )
    return tools


def _environment(env: Mapping[str, str], allowed: list[str] | None) -> dict[str, str]:
    config = _parse_config(env)
    if config is None:
        if allowed is not None:
            raise UnsupportedOption(
                f"{CONFIG_VARIABLE} is not valid JSON, so the allowed tools cannot be added to it",
                hint="remove comments from it",
            )
        # OpenCode accepts more than JSON, so the value is left as it is.
        return {}
    # Without this setting OpenCode ends with success at the first request for a permission.
    experimental = {"continue_loop_on_deny": True, **record_at(config, "experimental")}
    config = {**config, "experimental": experimental}
    if allowed is not None:
        agent = {"mode": "primary", "permission": _permission_rules(allowed)}
        config["agent"] = {**record_at(config, "agent"), LIMITED_AGENT: agent}
    return {CONFIG_VARIABLE: json.dumps(config, ensure_ascii=False)}


def _permission_rules(allowed: list[str]) -> dict[str, Any]:
    """Return permission rules that allow only these tools. The last rule that matches decides."""
    rules: dict[str, Any] = {"*": "deny"}
    for tool in allowed:
        name = "edit" if tool in _EDIT_TOOLS else tool
        rules[name] = _READ_RULES if name == "read" else "allow"
    return rules


def _parse_config(env: Mapping[str, str]) -> Record | None:
    """Parse the configuration in the environment; None if it is not valid JSON."""
    content = env.get(CONFIG_VARIABLE, "")
    return json_object(content.encode(errors="replace")) if content.strip() else {}
