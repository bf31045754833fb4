"""The environment of a real agent in a test: its program, a separate home, and a model that follows a script."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tools.agents import bin_of, is_installed

PROGRAMS = {
    "claude-code": "claude",
    "claude-sdk": "claude",
    "codex": "codex",
    "gemini": "gemini",
    "copilot": "copilot",
    "opencode": "opencode",
}
"""The program of each provider, which is also its name in the URLs of the model server."""
KEY = "dummy"

_PASSED_VARIABLES = ("PATH", "LANG", "LC_ALL", "USER", "LOGNAME")
"""The only variables that an agent inherits from the user who runs the tests: no account, no settings."""


def agent_environment(provider: str, url: str, home: Path) -> dict[str, str]:
    """Return the environment in which the model of a provider is at `url`."""
    program = PROGRAMS[provider]
    assert is_installed(program), f"{program} is not installed: python tools/agents.py {program}"
    home.mkdir(exist_ok=True)
    (home / "tmp").mkdir(exist_ok=True)
    inherited = {
        name: value for name, value in os.environ.items() if name in _PASSED_VARIABLES or name.startswith("COVERAGE")
    }
    return {
        **inherited,
        "PATH": os.pathsep.join([str(bin_of(program)), inherited.get("PATH", os.defpath)]),
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "TERM": "dumb",
        "NO_COLOR": "1",
        **_ENVIRONMENTS[provider](url, home),
    }


def _claude(url: str, home: Path) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "2",
        "DISABLE_AUTOUPDATER": "1",
        # Turns all permission checks off. As root, Claude Code allows that only in a sandbox.
        "IS_SANDBOX": "1",
    }


def _codex(url: str, home: Path) -> dict[str, str]:
    server = "model_providers.scripted"
    settings = [
        'model_provider="scripted"',
        f'{server}.name="scripted"',
        f'{server}.base_url="{url}/v1"',
        f'{server}.env_key="SCRIPTED_KEY"',
        f'{server}.wire_api="responses"',
        f"{server}.request_max_retries=0",
        f"{server}.stream_max_retries=1",
        "analytics.enabled=false",
        "check_for_update_on_startup=false",
        # Otherwise it looks for plugins on the network, and waits for them at its end.
        "features.plugins=false",
    ]
    return {"SHOPFLOOR_CODEX_CONFIG": "\n".join(settings), "SCRIPTED_KEY": KEY}


def _gemini(url: str, home: Path) -> dict[str, str]:
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    # With a base URL alone it asks for another way to log in, which it then refuses.
    settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    return {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": KEY,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "GEMINI_TELEMETRY_ENABLED": "false",
        # Without this it has no tool that runs commands.
        "SHOPFLOOR_AGENT_UNRESTRICTED": "1",
    }


def _copilot(url: str, home: Path) -> dict[str, str]:
    return {
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_API_KEY": KEY,
        "COPILOT_MODEL": "scripted-model",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }


def _opencode(url: str, home: Path) -> dict[str, str]:
    model = {
        "name": "Scripted",
        "tool_call": True,
        "reasoning": True,
        "limit": {"context": 200_000, "output": 8_000},
        "cost": {"input": 1, "output": 5, "cache_read": 0.1},
    }
    server = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {"scripted-model": model},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": "scripted/scripted-model",
        "small_model": "scripted/scripted-model",
        "provider": {"scripted": server},
        "permission": {"*": "allow"},
    }
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_SHARE": "1",
    }


_ENVIRONMENTS = {
    "claude-code": _claude,
    "claude-sdk": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "copilot": _copilot,
    "opencode": _opencode,
}
