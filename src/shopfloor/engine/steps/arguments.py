"""Arguments of tools, checked against a JSON Schema before the tool is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shopfloor.errors import ToolFailed
from shopfloor.limits import PROVIDER_MESSAGE_CHARS


def check_arguments(tool: str, schema: Mapping[str, Any], arguments: Any) -> None:
    """Raise `ToolFailed` if the arguments do not match the schema. A schema that is not valid accepts nothing."""
    import jsonschema

    try:
        jsonschema.validate(arguments, schema)
    except jsonschema.ValidationError as error:
        place = ".".join(map(str, error.absolute_path))
        reason = f"{place}: {error.message}" if place else error.message
        raise ToolFailed(f"invalid arguments for {tool!r}: {reason[:PROVIDER_MESSAGE_CHARS]}") from error
    except jsonschema.SchemaError as error:
        raise ToolFailed(f"the schema of {tool!r} is not valid: {error.message[:PROVIDER_MESSAGE_CHARS]}") from error
