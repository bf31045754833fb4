"""Settings of Codex that the environment brings along.

`SHOPFLOOR_CODEX_CONFIG` holds them, one `key=value` per line as `codex -c` takes them (the value is TOML); blank lines
and lines that begin with `#` are left out. By it a company points Codex to its own model provider:

    model_provider="acme"
    model_providers.acme.name="Acme"
    model_providers.acme.base_url="https://models.example.com/v1"
    model_providers.acme.env_key="ACME_KEY"
    model_providers.acme.wire_api="responses"
"""

from __future__ import annotations

from collections.abc import Mapping

CONFIG = "SHOPFLOOR_CODEX_CONFIG"


def settings(env: Mapping[str, str]) -> list[str]:
    lines = [line.strip() for line in env.get(CONFIG, "").split("\n")]
    return [line for line in lines if line and not line.startswith("#")]
