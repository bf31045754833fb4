"""By what Copilot logs in, in the order in which it looks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from shopfloor.adapters.providers.lines import json_object

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
