"""The engine: executes runs. The only package that decides which events a log gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr

if TYPE_CHECKING:
    from shopfloor.engine.agents import Prices, transcribe
    from shopfloor.engine.agents.request import AgentRuntime, check_agent_options
    from shopfloor.engine.assembly import RunEngine, assemble
    from shopfloor.engine.cancellation import Cancellation
    from shopfloor.engine.command_run import CommandOutcome, CommandRequest, run_command
    from shopfloor.engine.engine_ports import StoragePorts
    from shopfloor.engine.error_mapping import tolerate_temporary_errors
    from shopfloor.engine.hook_delivery import HookDelivery
    from shopfloor.engine.ingest import Ingest, pack
    from shopfloor.engine.maintenance import (
        HOST_LOST,
        end_orphan,
        finish_deletions,
        is_orphan,
        maintain_until_lost,
        requeue_abandoned,
        resume_or_end_orphans,
        run_maintenance,
    )
    from shopfloor.engine.registry import ClaimPolicy
    from shopfloor.engine.replay_state import outcome_of
    from shopfloor.engine.retention import delete_run, prunable, prunable_archives, prune, prune_archives
    from shopfloor.engine.run import Run
    from shopfloor.engine.run_service import RunService
    from shopfloor.engine.steps.agent import AgentResult
    from shopfloor.engine.steps.shell_process import StepCommand, shell_argv
    from shopfloor.engine.workers import (
        EXAMPLE_WORKERS,
        Definition,
        InputField,
        Problem,
        ToolDefinition,
        ValidationContext,
        Worker,
        WorkerCatalog,
        check_worker,
        default_folders,
        input_schema,
        is_required,
        is_slug,
        parse_input_arguments,
        provider_worker_definitions,
        tool,
        worker,
    )
    from shopfloor.engine.workers.definition import Retry

__all__ = [
    "EXAMPLE_WORKERS",
    "HOST_LOST",
    "AgentResult",
    "AgentRuntime",
    "Cancellation",
    "ClaimPolicy",
    "CommandOutcome",
    "CommandRequest",
    "Definition",
    "HookDelivery",
    "Ingest",
    "InputField",
    "Prices",
    "Problem",
    "Retry",
    "Run",
    "RunEngine",
    "RunService",
    "StepCommand",
    "StoragePorts",
    "ToolDefinition",
    "ValidationContext",
    "Worker",
    "WorkerCatalog",
    "assemble",
    "check_agent_options",
    "check_worker",
    "default_folders",
    "delete_run",
    "end_orphan",
    "finish_deletions",
    "input_schema",
    "is_orphan",
    "is_required",
    "is_slug",
    "maintain_until_lost",
    "outcome_of",
    "pack",
    "parse_input_arguments",
    "provider_worker_definitions",
    "prunable",
    "prunable_archives",
    "prune",
    "prune_archives",
    "requeue_abandoned",
    "resume_or_end_orphans",
    "run_command",
    "run_maintenance",
    "shell_argv",
    "tolerate_temporary_errors",
    "tool",
    "transcribe",
    "worker",
]

__getattr__ = _lazy_getattr(
    __name__,
    {
        "agents": (
            "Prices",
            "transcribe",
        ),
        "command_run": (
            "CommandOutcome",
            "CommandRequest",
            "run_command",
        ),
        "cancellation": ("Cancellation",),
        "assembly": (
            "RunEngine",
            "assemble",
        ),
        "hook_delivery": ("HookDelivery",),
        "ingest": (
            "Ingest",
            "pack",
        ),
        "maintenance": (
            "HOST_LOST",
            "end_orphan",
            "finish_deletions",
            "is_orphan",
            "maintain_until_lost",
            "outcome_of",
            "resume_or_end_orphans",
            "requeue_abandoned",
            "run_maintenance",
        ),
        "retention": (
            "delete_run",
            "prunable",
            "prunable_archives",
            "prune",
            "prune_archives",
        ),
        "registry": ("ClaimPolicy",),
        "replay_state": ("outcome_of",),
        "run": ("Run",),
        "run_service": ("RunService",),
        "agents.request": (
            "AgentRuntime",
            "check_agent_options",
        ),
        "engine_ports": ("StoragePorts",),
        "error_mapping": ("tolerate_temporary_errors",),
        "steps.agent": ("AgentResult",),
        "steps.shell_process": (
            "StepCommand",
            "shell_argv",
        ),
        "workers.definition": ("Retry",),
        "workers": (
            "Definition",
            "EXAMPLE_WORKERS",
            "InputField",
            "Problem",
            "ToolDefinition",
            "ValidationContext",
            "Worker",
            "WorkerCatalog",
            "check_worker",
            "default_folders",
            "input_schema",
            "is_required",
            "is_slug",
            "parse_input_arguments",
            "provider_worker_definitions",
            "tool",
            "worker",
        ),
    },
)
