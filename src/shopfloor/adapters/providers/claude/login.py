"""By what Claude Code logs in, in the order in which it looks itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

OAUTH_TOKEN = "CLAUDE_CODE_OAUTH_TOKEN"  # noqa: S105  (the name of a variable)
_VARIABLES = (
    # These say that a cloud serves the models, and that its own login is used.
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CODE_USE_FOUNDRY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_API_KEY",
    OAUTH_TOKEN,
)


def login(env: Mapping[str, str], home: Path) -> str | None:
    """The variable or file that is used; None where there is nothing."""
    for name in _VARIABLES:
        if env.get(name, "").strip():
            return name
    file = _file(env, home)
    return str(file) if file.is_file() else None


def access_mode(env: Mapping[str, str], home: Path) -> Literal["subscription", "api"]:
    """A key is paid by the token, and goes before a subscription where there are both."""
    return "subscription" if login(env, home) in (OAUTH_TOKEN, str(_file(env, home))) else "api"


def _file(env: Mapping[str, str], home: Path) -> Path:
    return Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude") / ".credentials.json"
