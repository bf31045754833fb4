"""Plugins as processes on this machine: manifests, JSON-RPC over HTTP, supervision."""

from shopfloor.adapters.plugins.allowances import Allowances
from shopfloor.adapters.plugins.conformance import CheckResult, open_conformance
from shopfloor.adapters.plugins.local_plugins import LocalPlugins, open_plugins, scan_plugin, scan_plugins
from shopfloor.adapters.plugins.manifest import MANIFEST_NAME, InvalidManifest, is_plugin_name, read_manifest

__all__ = [
    "MANIFEST_NAME",
    "Allowances",
    "CheckResult",
    "InvalidManifest",
    "LocalPlugins",
    "is_plugin_name",
    "open_conformance",
    "open_plugins",
    "read_manifest",
    "scan_plugin",
    "scan_plugins",
]
