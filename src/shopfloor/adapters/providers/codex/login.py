"""By what Codex logs in, as Codex itself looks for it: its own variable, then its file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from shopfloor.adapters.providers.codex.settings import CONFIG, settings
from shopfloor.adapters.providers.lines import json_object
from shopfloor.adapters.providers.reading import text_at

CODEX_KEY = "CODEX_API_KEY"
OPENAI_KEY = "OPENAI_API_KEY"


def login(env: Mapping[str, str], home: Path) -> str | None:
    """The variable or file that is used; None where there is nothing.

    Codex does not look at `OPENAI_API_KEY`. We hand it over where there is no other way, and not before: who has logged
    in with a subscription shall not pay by the token because of a variable that is meant for other programs.
    """
    if any(setting.partition("=")[0].strip() == "model_provider" for setting in settings(env)):
        return CONFIG
    if env.get(CODEX_KEY, "").strip():
        return CODEX_KEY
    file = _file(env, home)
    if file.is_file():
        return str(file)
    return OPENAI_KEY if env.get(OPENAI_KEY, "").strip() else None


def access_mode(env: Mapping[str, str], home: Path) -> Literal["subscription", "api"]:
    file = _file(env, home)
    if login(env, home) != str(file):
        return "api"
    try:
        kept = json_object(file.read_bytes()) or {}
    except OSError:
        kept = {}
    # `codex login --with-api-key` writes a key to the same file.
    by_key = text_at(kept, OPENAI_KEY) is not None and not kept.get("tokens")
    return "api" if by_key else "subscription"


def codex_home(env: Mapping[str, str], home: Path) -> Path:
    """Where Codex keeps what is its own."""
    return Path(env.get("CODEX_HOME") or home / ".codex")


def _file(env: Mapping[str, str], home: Path) -> Path:
    return codex_home(env, home) / "auth.json"
