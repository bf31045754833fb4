"""Plugin workers: plugins that accept jobs, as workers with one step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shopfloor.engine.workers.definition import Definition, InputField, PluginJob, Variable
from shopfloor.engine.workers.problems import Problem
from shopfloor.ports import PluginInfo
from shopfloor.views import preview

TASK = "task"
DESCRIPTION = "description"
_INPUT = {
    TASK: InputField(description="The task, as the plugin's agent gets it."),
    DESCRIPTION: InputField(description="A short label for lists; by default the start of the task.", optional=True),
    "config": InputField(type="object", description="Options of the plugin.", optional=True),
}


def job_description(worker_input: dict[str, Any]) -> str:
    """Return the description of the job that a run with this input dispatches."""
    return str(worker_input.get(DESCRIPTION) or preview(worker_input.get(TASK)))


def plugin_definition(plugin: PluginInfo) -> Definition:
    """Return the definition of the worker that hands its task to a plugin."""
    step = PluginJob(plugin=plugin.name, task="{{task}}", label="{{description}}", config="{{config}}", output="RESULT")
    return Definition(
        slug=plugin.name,
        name=plugin.display_name or None,
        description=plugin.description or f"Hands a task to the plugin {plugin.name}.",
        input=_INPUT,
        variables={"RESULT": Variable()},
        steps={plugin.name: step},
        output="RESULT",
    )


def plugin_problems(plugin: PluginInfo) -> tuple[Problem, ...]:
    """Return why the plugin cannot be used."""
    return () if plugin.error is None else (Problem(Path(plugin.folder), 1, plugin.error),)
