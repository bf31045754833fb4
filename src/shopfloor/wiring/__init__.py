"""The composition root: the only package that names adapters."""

from shopfloor.adapters.local import local_process_name
from shopfloor.wiring.engine import local_engine
from shopfloor.wiring.hooks import add_run_hook, desktop_hook, has_desktop_server, run_hook_command
from shopfloor.wiring.hosts import run_host
from shopfloor.wiring.in_process import open_api, open_client
from shopfloor.wiring.plugins import (
    allow_plugin,
    check_plugin,
    create_plugin,
    list_plugins,
    own_plugins,
    plugin_templates,
)
from shopfloor.wiring.providers import find_providers, local_validation_context, provider_names, transcribe_output
from shopfloor.wiring.server import access_control, hold_server_lock, open_audit, serve_storage
from shopfloor.wiring.server_thread import ServerThread
from shopfloor.wiring.settings import WorkerSettings, heartbeat_seconds, seconds_setting
from shopfloor.wiring.storage import (
    CommandPorts,
    StorageBackend,
    find_later_runs,
    local_backend,
    local_command_ports,
    memory_backend,
    open_projects,
    subscribe_deltas,
)

__all__ = [
    "CommandPorts",
    "ServerThread",
    "StorageBackend",
    "WorkerSettings",
    "access_control",
    "add_run_hook",
    "allow_plugin",
    "check_plugin",
    "create_plugin",
    "desktop_hook",
    "find_later_runs",
    "find_providers",
    "has_desktop_server",
    "heartbeat_seconds",
    "hold_server_lock",
    "list_plugins",
    "local_backend",
    "local_command_ports",
    "local_engine",
    "local_process_name",
    "local_validation_context",
    "memory_backend",
    "open_api",
    "open_audit",
    "open_client",
    "open_projects",
    "own_plugins",
    "plugin_templates",
    "provider_names",
    "run_hook_command",
    "run_host",
    "seconds_setting",
    "serve_storage",
    "subscribe_deltas",
    "transcribe_output",
]
