"""Workers as they are defined: found, read, checked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shopfloor.lazy import lazily as _lazily

if TYPE_CHECKING:
    from shopfloor.engine.workers.bare import bare_definitions
    from shopfloor.engine.workers.catalogue import EXAMPLE_WORKERS, Catalogue, Worker, default_folders
    from shopfloor.engine.workers.definition import (
        Definition,
        InputField,
        ToolDefinition,
        definition_hash,
        is_slug,
        segment_of,
    )
    from shopfloor.engine.workers.inputs import checked_input, coerced_words, input_schema, is_required
    from shopfloor.engine.workers.loading import load_object
    from shopfloor.engine.workers.meaning import Surroundings
    from shopfloor.engine.workers.parsing import check_worker, read_worker
    from shopfloor.engine.workers.problems import Problem
    from shopfloor.engine.workers.python import PythonTool, PythonWorker, arguments_of, tool, worker
    from shopfloor.engine.workers.values import (
        fill,
        fill_argv,
        fill_shell,
        fill_text,
        holds,
        output_value,
        placeholders,
    )

__all__ = [
    "EXAMPLE_WORKERS",
    "Catalogue",
    "Definition",
    "InputField",
    "Problem",
    "PythonTool",
    "PythonWorker",
    "Surroundings",
    "ToolDefinition",
    "Worker",
    "arguments_of",
    "bare_definitions",
    "check_worker",
    "checked_input",
    "coerced_words",
    "default_folders",
    "definition_hash",
    "fill",
    "fill_argv",
    "fill_shell",
    "fill_text",
    "holds",
    "input_schema",
    "is_required",
    "is_slug",
    "load_object",
    "output_value",
    "placeholders",
    "read_worker",
    "segment_of",
    "tool",
    "worker",
]

__getattr__ = _lazily(
    __name__,
    {
        "bare": ("bare_definitions",),
        "catalogue": ("EXAMPLE_WORKERS", "Catalogue", "Worker", "default_folders"),
        "definition": ("Definition", "InputField", "ToolDefinition", "definition_hash", "is_slug", "segment_of"),
        "inputs": ("checked_input", "coerced_words", "input_schema", "is_required"),
        "loading": ("load_object",),
        "meaning": ("Surroundings",),
        "parsing": ("check_worker", "read_worker"),
        "problems": ("Problem",),
        "python": ("PythonTool", "PythonWorker", "arguments_of", "tool", "worker"),
        "values": ("fill", "fill_argv", "fill_shell", "fill_text", "holds", "output_value", "placeholders"),
    },
)
