"""Builds the page into the wheel, so that its users need no Node, and adds the plugins as templates."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NOT_IN_TEMPLATES = {"jobs", "memory", "__pycache__"}
"""Folders of a plugin that its use has left."""


class BuildPage(BuildHookInterface[Any]):
    """Builds the page into the package, and adds the templates of plugins."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, self.root)
        from tools import page

        page.build()
        # Git ignores the folder, and so would the builder.
        build_data["artifacts"].append("/src/shopfloor/server/page/")
        plugins = Path(self.root, "plugins")
        for path in sorted(plugins.rglob("*")):
            name = path.relative_to(plugins)
            if path.is_file() and NOT_IN_TEMPLATES.isdisjoint(name.parts):
                build_data["force_include"][str(path)] = f"shopfloor/plugin_templates/{name}"
