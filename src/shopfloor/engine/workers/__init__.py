"""Worker definitions: finding, reading and checking them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.lazy import lazy_getattr as _lazy_getattr

if TYPE_CHECKING:
    from shopfloor.engine.workers.catalog import EXAMPLE_WORKERS, Worker, WorkerCatalog, default_folders
    from shopfloor.engine.workers.definition import (
        Definition,
        InputField,
        ToolDefinition,
        definition_hash,
        is_slug,
        path_segment,
    )
    from shopfloor.engine.workers.imports import load_object
    from shopfloor.engine.workers.inputs import input_schema, is_required, parse_input_arguments, validate_input
    from shopfloor.engine.workers.parsing import check_worker, read_worker
    from shopfloor.engine.workers.problems import Problem
    from shopfloor.engine.workers.provider_workers import provider_worker_definitions
    from shopfloor.engine.workers.python import PythonTool, PythonWorker, accepted_arguments, tool, worker
    from shopfloor.engine.workers.references import ValidationContext
    from shopfloor.engine.workers.templating import (
        evaluate_condition,
        fill,
        fill_argv,
        fill_shell,
        fill_text,
        output_value,
        placeholders,
    )

__all__ = [
    "EXAMPLE_WORKERS",
    "Definition",
    "InputField",
    "Problem",
    "PythonTool",
    "PythonWorker",
    "ToolDefinition",
    "ValidationContext",
    "Worker",
    "WorkerCatalog",
    "accepted_arguments",
    "check_worker",
    "default_folders",
    "definition_hash",
    "evaluate_condition",
    "fill",
    "fill_argv",
    "fill_shell",
    "fill_text",
    "input_schema",
    "is_required",
    "is_slug",
    "load_object",
    "output_value",
    "parse_input_arguments",
    "path_segment",
    "placeholders",
    "provider_worker_definitions",
    "read_worker",
    "tool",
    "validate_input",
    "worker",
]

__getattr__ = _lazy_getattr(
    __name__,
    {
        "provider_workers": ("provider_worker_definitions",),
        "catalog": (
            "EXAMPLE_WORKERS",
            "Worker",
            "WorkerCatalog",
            "default_folders",
        ),
        "definition": (
            "Definition",
            "InputField",
            "ToolDefinition",
            "definition_hash",
            "is_slug",
            "path_segment",
        ),
        "inputs": (
            "input_schema",
            "is_required",
            "parse_input_arguments",
            "validate_input",
        ),
        "imports": ("load_object",),
        "references": ("ValidationContext",),
        "parsing": (
            "check_worker",
            "read_worker",
        ),
        "problems": ("Problem",),
        "python": (
            "PythonTool",
            "PythonWorker",
            "accepted_arguments",
            "tool",
            "worker",
        ),
        "templating": (
            "evaluate_condition",
            "fill",
            "fill_argv",
            "fill_shell",
            "fill_text",
            "output_value",
            "placeholders",
        ),
    },
)
