"""Plugins as processes on this machine: manifests, JSON-RPC over HTTP, supervision."""

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr

if TYPE_CHECKING:
    from shopfloor.adapters.plugins.allowances import Allowances
    from shopfloor.adapters.plugins.client import CallLimits, JsonRpcClient
    from shopfloor.adapters.plugins.conformance import CheckResult, open_conformance
    from shopfloor.adapters.plugins.lease import PluginLease
    from shopfloor.adapters.plugins.local_plugins import LocalPlugins, open_plugins, scan_plugin, scan_plugins
    from shopfloor.adapters.plugins.manifest import MANIFEST_NAME, InvalidManifest, is_plugin_name, read_manifest

__all__ = [
    "MANIFEST_NAME",
    "Allowances",
    "CallLimits",
    "CheckResult",
    "InvalidManifest",
    "JsonRpcClient",
    "LocalPlugins",
    "PluginLease",
    "is_plugin_name",
    "open_conformance",
    "open_plugins",
    "read_manifest",
    "scan_plugin",
    "scan_plugins",
]

__getattr__ = _lazy_getattr(
    __name__,
    {
        "allowances": ("Allowances",),
        "client": ("CallLimits", "JsonRpcClient"),
        "conformance": ("CheckResult", "open_conformance"),
        "lease": ("PluginLease",),
        "local_plugins": ("LocalPlugins", "open_plugins", "scan_plugin", "scan_plugins"),
        "manifest": ("MANIFEST_NAME", "InvalidManifest", "is_plugin_name", "read_manifest"),
    },
)
