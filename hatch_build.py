"""Builds the page into the wheel, so that whoever installs Shopfloor needs no Node."""

from __future__ import annotations

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuildPage(BuildHookInterface[Any]):
    """Builds the page into the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        from tools import page

        page.build()
        # Git ignores the folder, and so would the builder.
        build_data["artifacts"].append("/src/shopfloor/server/page/")
