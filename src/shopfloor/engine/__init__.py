"""What makes runs happen. The only room that decides what is written to a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.lazy import lazily as _lazily

if TYPE_CHECKING:
    from shopfloor.engine.agents import Prices, transcribed
    from shopfloor.engine.agents.asking import AgentDesk, check_order
    from shopfloor.engine.assembly import RunEngine, assemble
    from shopfloor.engine.bare_command import CommandOutcome, CommandRequest, run_command
    from shopfloor.engine.cancel import Cancellation
    from shopfloor.engine.ingest import Ingest, pack
    from shopfloor.engine.keeper import keep, reconcile, take_over
    from shopfloor.engine.orphans import HOST_LOST, end_orphan, is_orphan
    from shopfloor.engine.recovery import finish_deletions, keep_until_lost
    from shopfloor.engine.registry import ClaimPolicy
    from shopfloor.engine.retention import delete_run, prunable, prunable_archives, prune, prune_archives
    from shopfloor.engine.run import Run
    from shopfloor.engine.run_service import RunService
    from shopfloor.engine.steps.agent import AgentResult
    from shopfloor.engine.steps.serving import StepCommand, shell_argv
    from shopfloor.engine.storage_ports import StoragePorts
    from shopfloor.engine.workers import (
        EXAMPLE_WORKERS,
        Catalogue,
        Definition,
        InputField,
        Problem,
        Surroundings,
        ToolDefinition,
        Worker,
        bare_definitions,
        check_worker,
        coerced_words,
        default_folders,
        input_schema,
        is_required,
        is_slug,
        tool,
        worker,
    )
    from shopfloor.engine.workers.definition import Retry

__all__ = [
    "EXAMPLE_WORKERS",
    "HOST_LOST",
    "AgentDesk",
    "AgentResult",
    "Cancellation",
    "Catalogue",
    "ClaimPolicy",
    "CommandOutcome",
    "CommandRequest",
    "Definition",
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
    "Surroundings",
    "ToolDefinition",
    "Worker",
    "assemble",
    "bare_definitions",
    "check_order",
    "check_worker",
    "coerced_words",
    "default_folders",
    "delete_run",
    "end_orphan",
    "finish_deletions",
    "input_schema",
    "is_orphan",
    "is_required",
    "is_slug",
    "keep",
    "keep_until_lost",
    "pack",
    "prunable",
    "prunable_archives",
    "prune",
    "prune_archives",
    "reconcile",
    "run_command",
    "shell_argv",
    "take_over",
    "tool",
    "transcribed",
    "worker",
]

__getattr__ = _lazily(
    __name__,
    {
        "agents": ("Prices", "transcribed"),
        "bare_command": ("CommandOutcome", "CommandRequest", "run_command"),
        "cancel": ("Cancellation",),
        "assembly": ("RunEngine", "assemble"),
        "ingest": ("Ingest", "pack"),
        "keeper": ("keep", "reconcile", "take_over"),
        "orphans": ("HOST_LOST", "end_orphan", "is_orphan"),
        "recovery": ("finish_deletions", "keep_until_lost", "recover"),
        "retention": ("delete_run", "prunable", "prunable_archives", "prune", "prune_archives"),
        "registry": ("ClaimPolicy",),
        "run": ("Run",),
        "run_service": ("RunService",),
        "agents.asking": ("AgentDesk", "check_order"),
        "storage_ports": ("StoragePorts",),
        "steps.agent": ("AgentResult",),
        "steps.serving": ("StepCommand", "shell_argv"),
        "workers.definition": ("Retry",),
        "workers": (
            "EXAMPLE_WORKERS",
            "Catalogue",
            "Definition",
            "InputField",
            "Problem",
            "Surroundings",
            "ToolDefinition",
            "Worker",
            "bare_definitions",
            "check_worker",
            "coerced_words",
            "default_folders",
            "input_schema",
            "is_required",
            "is_slug",
            "tool",
            "worker",
        ),
    },
)
