"""docs/reference/transcript.md: the format of a transcript."""

import msgspec

from shopfloor.log import (
    BLOCK_TYPES,
    PAYLOAD_TYPES,
    RULES,
    Awaits,
    BasedOn,
    ClientInfo,
    Cost,
    EndedProcess,
    FailureDecision,
    FileChange,
    Initialization,
    Limit,
    Line,
    Note,
    Process,
    Requirements,
    RunError,
    Session,
    Usage,
)
from tools import docs_record
from tools.docs_fields import field_table
from tools.docs_markdown import code, generated, page, section, table
from tools.docs_source import SOURCE, attribute_docs, parsed, summary

OBJECTS: tuple[type[msgspec.Struct], ...] = (
    *(
        Process,
        EndedProcess,
        Session,
        Usage,
        Cost,
        RunError,
        FailureDecision,
        Awaits,
        ClientInfo,
        Requirements,
        BasedOn,
    ),
    *(Note, Initialization, Limit, FileChange),
)

INTRO = """\
A transcript is the log of one run: every fact about the run, in the order in which it happened, one JSON object to a
line. It is written during the run and never changed afterwards. `shopfloor schema` prints the same format as a JSON
Schema, and `shopfloor verify` checks a file against the rules."""

READERS = """\
A writer writes only what is described here. A reader is more tolerant: it ignores unknown fields, and it passes on
events and blocks of unknown types unchanged, marked as unknown."""

CHUNKS = """\
A message that arrives in parts is written in parts, without delay: several `message.assistant` events, which share a
`message_id` if the provider has one. A tool call of an agent is a `tool_use` block in its message, and also the events
`tool.call` and `tool.result`; count the events, not the blocks."""


def transcript_page() -> str:
    return page(
        "The transcript",
        generated("the code"),
        INTRO,
        docs_record.file_section(),
        section("The envelope", "Every line has these fields, in this order.", field_table(Line)),
        _events(),
        section("Objects in payloads", *map(_object, OBJECTS)),
        _blocks(),
        section("Fidelity", attribute_docs(parsed(SOURCE / "log" / "blocks.py").body)["Fidelity"]),
        section("The rules", "What `shopfloor verify` checks.", table(("rule", "meaning"), _rule_rows())),
        section("Reading newer versions", READERS),
        docs_record.durability_section(),
        docs_record.fanout_section(),
        docs_record.masking_section(),
        docs_record.jq_section(),
        docs_record.example_section(),
    )


def _events() -> str:
    rows = [(f"[{code(name)}](#{_anchor(name)})", summary(cls)) for name, cls in PAYLOAD_TYPES.items()]
    events = [section(code(name), summary(cls), field_table(cls), level=3) for name, cls in PAYLOAD_TYPES.items()]
    return section("Event types", "There are ten.", table(("type", "what happened"), rows), CHUNKS, *events)


def _object(cls: type[msgspec.Struct]) -> str:
    return section(cls.__name__, summary(cls), field_table(cls), level=3)


def _blocks() -> str:
    blocks = [section(code(name), summary(cls), field_table(cls), level=3) for name, cls in BLOCK_TYPES.items()]
    return section("Content blocks", "A message holds a list of blocks. There are six kinds.", *blocks)


def _rule_rows() -> list[tuple[str, str]]:
    return [(code(rule), text) for rule, text in RULES.items()]


def _anchor(heading: str) -> str:
    """Return a heading's anchor, as Markdown hosts generate it."""
    return heading.replace(".", "")
