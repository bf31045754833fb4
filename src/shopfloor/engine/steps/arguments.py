"""Arguments of tools, checked against a JSON Schema before the tool is called."""

from __future__ import annotations

from typing import Any, cast

from shopfloor.errors import ToolFailed
from shopfloor.limits import PROVIDER_MESSAGE_CHARS


def check_arguments(tool: str, schema: dict[str, Any], arguments: Any) -> None:
    """Raise `ToolFailed` if the arguments do not match the schema, or if the schema is not valid."""
    import jsonschema
    from jsonschema import exceptions
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        validator = validator_for(schema, default=jsonschema.Draft202012Validator)
        validator.check_schema(schema)
        # With an empty registry: a schema of a plugin must not make this process load something from the network.
        errors = validator(schema, registry=Registry()).iter_errors(arguments)
        error = cast("jsonschema.ValidationError | None", cast("Any", exceptions).best_match(errors))
    except (jsonschema.SchemaError, Unresolvable) as invalid:
        reason = invalid.message if isinstance(invalid, jsonschema.SchemaError) else str(invalid)
        raise ToolFailed(f"the schema of {tool!r} is not valid: {reason[:PROVIDER_MESSAGE_CHARS]}") from invalid
    if error is not None:
        place = ".".join(map(str, error.absolute_path))
        reason = f"{place}: {error.message}" if place else error.message
        raise ToolFailed(f"invalid arguments for {tool!r}: {reason[:PROVIDER_MESSAGE_CHARS]}")
