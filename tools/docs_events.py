"""docs/reference/events.md: the fleet events and their payloads."""

import ast
from collections.abc import Iterator
from types import NoneType
from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from shopfloor.adapters.limits import FLEET_EVENTS_KEPT
from shopfloor.limits import FLEET_EVENT_TEXT_BYTES
from shopfloor.server.limits import FLEET_SUBSCRIBER_EVENTS, WEBSOCKET_AUTH_SECONDS
from shopfloor.server.trpc_protocol import PROCEDURES
from shopfloor.views import EVENT_STREAMS, FLEET_PAYLOADS, HEARTBEAT, stream_of
from tools.docs_fields import without_null
from tools.docs_markdown import code, generated, page, section, table
from tools.docs_source import SOURCE, attribute_docs, parsed, summary

PLANNED = frozenset({"worker.scaling", "provider.fallback"})
"""Types that nothing sends yet."""

INTRO = """\
Fleet events tell a dashboard what agents, hosts and providers do, while they do it. Each is an object with `type`,
`payload` and `timestamp`; the type determines the payload. There are twenty types, in three streams.
[How to subscribe](../how-to/events.md) is a page of its own. `shopfloor schema --events` prints this page as a JSON
Schema."""

WORDS = """\
On the wire a run is a *task* (`taskId`), a host that executes runs is a *worker* (`workerId`), and a session of an
agent or a model is an *agent* (`agentId`).

| session | `agentId` | lasts |
| --- | --- | --- |
| of an agent | `<run id>:<path>:<iteration>:<try>` of its step | until the try ends |
| of an agent that a later attempt resumed | the same, followed by `:<attempt>` | until the try ends |
| of a sub-agent without a step | the run's id | until the run ends |
| conversation with a model | `<run id>:<path>:<iteration>` of the step that started it | see below |

A conversation lasts until its only step ends, or the `for-each` that started it, or the run, or until one of its steps
fails for good. It has no process. Its `accessMode` is `api`, and `local` if a script plays the model. It keeps its id
when a step is tried again and when another host resumes the run.

## Order

- `agent.ready` of Claude Code has the size of its context, which is known when the model begins to answer. It is sent
  then, or with the next event of the session; its timestamp is the time at which the session was ready. Codex, Gemini,
  Copilot and OpenCode do not report the size before they work, so `contextTokens` is null. A conversation is ready with
  the first answer of the model.
- An error that stops an agent is sent when it is known what follows: as soon as its step has ended, or goes on.
- A session that is stopped at its time limit, or cancelled, gets `agent.terminated` and no `agent.error`. If
  another try of a conversation follows its time limit, it gets an `agent.error` with the action `retry`.
- Nothing takes over from a failed provider yet: the action `fallback` is not sent."""

NULLS = """\
A payload has all the fields that are marked `always`. A value that cannot be known is `null` and never an
invented number: a cost of 0 would read as free, an exit code of 0 as success. Fields marked `optional` are left out
when they are unknown."""

CURSORS = f"""\
Every stored event has a cursor, a number that only grows. The newest {FLEET_EVENTS_KEPT:,} events are kept. Texts are
cut at {FLEET_EVENT_TEXT_BYTES:,} bytes; the log has the whole. Deleting a run deletes its events, and
`shopfloor rebuild` changes no cursor.

A subscriber that reconnects with the cursor of its last event gets all later events, each once. If some of them are no
longer stored, it gets an object with the type `gap` first, with its own cursor as `payload.lastEventId`, then what is
stored. A subscriber with more than {FLEET_SUBSCRIBER_EVENTS} events to receive gets them from the store at its own
speed, and does not delay the others. `{HEARTBEAT}` is sent live and is not stored; it carries the cursor of the last
stored event.

The token is `token` in tRPC's `connectionParams`, sent within {WEBSOCKET_AUTH_SECONDS:g} seconds, or the header
`Authorization`, or a browser's session from the server's own page."""

_INPUT = "with the optional input `providerId`, `taskId`, `tree` and `lastEventId`"
INTERFACES = (
    ("tRPC 11 over WebSocket", f"`/trpc`: {', '.join(map(code, PROCEDURES))}, {_INPUT}", "`result.id`, `lastEventId`"),
    ("server-sent events", "`GET /api/events/stream`", "`id`, `Last-Event-ID`"),
    ("JSON", "`GET /api/events`", "`id` of each event, `cursor` of the page"),
    ("Python", "`client.events(provider=…, run=…)`", "`event.id`, `after`"),
    ("command line", "`shopfloor events --follow`", ""),
)

HEADS = {
    "agent": ("Agents", "What happens in the sessions of agents and models, as a view of the logs."),
    "worker": ("Hosts", "The processes that execute runs."),
    "provider": ("Providers", "What powers the sessions."),
}


def events_page() -> str:
    return page(
        "Fleet events",
        generated("the code"),
        INTRO,
        section("Words", WORDS),
        section("Fields without a value", NULLS),
        _delivery(),
        *(_stream(stream) for stream in EVENT_STREAMS),
    )


def _delivery() -> str:
    return section("Delivery", CURSORS, table(("interface", "address", "cursor"), INTERFACES))


def _stream(stream: str) -> str:
    title, text = HEADS[stream]
    return section(title, text, *(_event(name) for name in FLEET_PAYLOADS if stream_of(name) == stream))


def _event(name: Any) -> str:
    payload = FLEET_PAYLOADS[name]
    planned = "Nothing sends this type yet." if name in PLANNED else ""
    return section(
        code(name), summary(payload), planned, table(("field", "type", "present", "meaning"), _rows(payload)), level=3
    )


def _rows(kind: Any, prefix: str = "") -> Iterator[tuple[str, ...]]:
    """Yield a row for each field, and below it the fields of the objects in it."""
    docs = _field_docs(kind)
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        is_optional = get_origin(annotation) is NotRequired
        value = get_args(annotation)[0] if is_optional else annotation
        inner = _object_in(value)
        meaning = docs.get(name) or (summary(inner) if inner else "")
        yield code(prefix + name), _type_name(value), "optional" if is_optional else "always", meaning
        if inner is not None:
            separator = "[]." if get_origin(value) is list else "."
            yield from _rows(inner, f"{prefix}{name}{separator}")


def _field_docs(kind: Any) -> dict[str, str]:
    """Return the docstrings of the fields; unlike other classes, a TypedDict has no bases in `__mro__`."""
    path = SOURCE / "views" / f"{kind.__module__.rpartition('.')[2]}.py"
    body = next(
        node.body for node in parsed(path).body if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    return attribute_docs(body)


def _object_in(annotation: Any) -> Any:
    """Return the object that a field has, or None."""
    bare = without_null(annotation)
    if get_origin(bare) is list:
        bare = get_args(bare)[0]
    return bare if is_typeddict(bare) else None


_NAMES: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any", NoneType: "null"}


def _type_name(annotation: Any) -> str:
    if annotation in _NAMES:
        return _NAMES[annotation]
    if is_typeddict(annotation):
        return "object"
    arguments = get_args(annotation)
    match get_origin(annotation):
        case origin if origin is Literal:
            return " or ".join(code(f'"{value}"') for value in arguments)
        case origin if origin is list:
            return f"array of {_type_name(arguments[0])}"
        case origin if origin is dict:
            return f"object of {_type_name(arguments[1])}"
        case _:
            return " or ".join(_type_name(argument) for argument in arguments)
