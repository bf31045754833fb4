"""How OpenCode is started: `opencode run --format json …`, the prompt by stdin: as an argument it would be quoted.

What it may do. By default what the user's own configuration lets it do (OpenCode's default is everything in its folder,
commands too); what it would have to ask for is refused, and it goes on. With `SHOPFLOOR_AGENT_UNRESTRICTED=1` that is
approved too (`--auto`); what is denied stays so. A list of tools, or `read_only`, is held by an agent of ours, given in
`OPENCODE_CONFIG_CONTENT`: an agent's own rules come after all others, and the last rule decides.
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

UNRESTRICTED = "SHOPFLOOR_AGENT_UNRESTRICTED"
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
AGENT = "shopfloor-limited"

_EDITING = frozenset({"edit", "write", "apply_patch"})
"""To OpenCode's rules they are one."""
_READ = {"*": "allow", "*.env": "deny", "*.env.*": "deny", "*.env.example": "allow"}
"""Files with secrets it has to ask for, and nobody is there to say yes."""


class OpenCode:
    name = "opencode"
    program = "opencode"
    install = "npm install -g opencode-ai"
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
        config = _configuration(env) or {}
        providers = record_at(config, "provider")
        if any(record_at(record_at(providers, name), "options").get("apiKey") for name in providers):
            return CONFIG_VARIABLE
        for key in LOGIN_VARIABLES:
            if env.get(key, "").strip():
                return key
        file = Path(env.get("XDG_DATA_HOME") or home / ".local" / "share") / "opencode" / "auth.json"
        return str(file) if file.is_file() else None

    def launch(self, request: AgentRequest, env: Mapping[str, str]) -> Launch:
        _check(request)
        # It works where the variable `PWD` says, which is of whoever started us, unless it is told otherwise.
        argv = [self.program, "run", "--format", "json", "--thinking", f"--dir={request.cwd}"]
        allowed = _allowed(request)
        if allowed is not None:
            argv += ["--agent", AGENT]
        if env.get(UNRESTRICTED) == "1":
            argv.append("--auto")
        if request.model is not None:
            argv.append(f"--model={request.model}")
        if request.resume is not None:
            argv.append(f"--session={request.resume}")
        else:
            # Without a title a model is asked for one, which nobody would be told the price of.
            argv.append(f"--title=shopfloor {request.session_id[:8]}")
        # It has no option for a system prompt beside its own, so that goes before the prompt.
        said = [request.prompt] if request.system_prompt is None else [request.system_prompt, request.prompt]
        return Launch(
            argv=argv,
            env=_environment(env, allowed),
            stdin="\n\n".join(said).encode(errors="replace"),
            session_id=request.resume,
        )

    def normalizer(self, *, resumed: bool | None = None, prior_usage: Usage | None = None) -> OpenCodeNormalizer:
        """Whether it is resumed makes no difference: its numbers are those of each step."""
        return OpenCodeNormalizer()

    def session_model(self, session_id: str, env: Mapping[str, str]) -> str | None:
        """It keeps that in a database of its own."""
        return None


def _check(request: AgentRequest) -> None:
    if request.max_turns is not None:
        raise UnsupportedOption("opencode cannot be held to a number of turns", hint="give it a budget instead")
    if request.model is not None and not all(request.model.partition("/")):
        raise UnsupportedOption(
            f"opencode does not know whose model {request.model!r} is", hint="name it provider/model"
        )


def _allowed(request: AgentRequest) -> list[str] | None:
    """The tools that it is held to; None where it is held to none."""
    if request.tools is None:
        return list(READ_ONLY_TOOLS) if request.read_only else None
    tools = [tool for tool in request.tools if tool in READ_ONLY_TOOLS or not request.read_only]
    if "task" in tools:
        raise UnsupportedOption(
            "opencode's sub-agents have tools of their own, whatever the agent is held to", hint="leave out `task`"
        )
    if not _EDITING.isdisjoint(tools) and not _EDITING.issubset(tools):
        raise UnsupportedOption(
            "opencode does not tell its editing tools apart",
            hint=f"name {', '.join(sorted(_EDITING))}, or none of them",
        )
    return tools


def _environment(env: Mapping[str, str], allowed: list[str] | None) -> dict[str, str]:
    config = _configuration(env)
    if config is None:
        if allowed is not None:
            raise UnsupportedOption(
                f"{CONFIG_VARIABLE} is not JSON, so opencode cannot be held to tools by it",
                hint="write it without comments",
            )
        # OpenCode takes more than we can read; it is left as it is.
        return {}
    # Else it ends, as if all were well, at the first thing that it would have to ask for.
    experimental = {"continue_loop_on_deny": True, **record_at(config, "experimental")}
    config = {**config, "experimental": experimental}
    if allowed is not None:
        agent = {"mode": "primary", "permission": _permission(allowed)}
        config["agent"] = {**record_at(config, "agent"), AGENT: agent}
    return {CONFIG_VARIABLE: json.dumps(config, ensure_ascii=False)}


def _permission(allowed: list[str]) -> dict[str, Any]:
    """The last rule that fits decides."""
    rules: dict[str, Any] = {"*": "deny"}
    for tool in allowed:
        name = "edit" if tool in _EDITING else tool
        rules[name] = _READ if name == "read" else "allow"
    return rules


def _configuration(env: Mapping[str, str]) -> Record | None:
    """What is in the environment already; None where it cannot be read."""
    given = env.get(CONFIG_VARIABLE, "")
    return json_object(given.encode(errors="replace")) if given.strip() else {}
