"""The parts of the transcript's reference that are about writing and reading it."""

import os
import subprocess
import sys

from shopfloor.limits import (
    DROP_WARNING_SECONDS,
    LOG_LINE_BYTES,
    LOG_MODE,
    MASK_LOOKBACK_BYTES,
    SECRET_MIN_CHARS,
    SUBSCRIBER_EVENTS,
)
from shopfloor.log import FORMAT, MASK, Gap
from shopfloor.record import Durability, SubscriberStats
from tools.docs_markdown import code, fenced, section, table
from tools.docs_source import ROOT, SOURCE, constant, field_docs, summary

EXAMPLE = ROOT / "tests" / "golden" / "command.jsonl"

# What each line is for, and the line; FILE stands for a transcript.
JQ_LINES: tuple[tuple[str, str], ...] = (
    ("Everything, readably", "jq . FILE"),
    ("Every tool call and its result", """jq 'select(.type == "tool.call" or .type == "tool.result")' FILE"""),
    (
        "What the assistant said, or what the command printed",
        'jq -r \'select(.type == "message.assistant") | .payload.blocks[] | select(.type == "text") | .text\' FILE',
    ),
    (
        "Only the tool calls that Shopfloor made itself",
        """jq 'select(.type == "tool.call" and .payload.fidelity == "router")' FILE""",
    ),
    (
        "The steps, with their kind",
        r"""jq -r 'select(.type == "step.started") | "\(.seq)\t\(.path)\t\(.payload.kind)"' FILE""",
    ),
    ("The sub-runs", """jq -r 'select(.type == "step.call_workflow.started") | .child_run_id' FILE"""),
    (
        "The outcome",
        """jq 'select(.type == "run.completed") | .payload | {status, error, duration_ms}' FILE""",
    ),
    (
        "What was printed to stderr",
        'jq -j \'select(.type == "message.assistant") | .payload.blocks[] | select(.stream == "stderr") | .text\' FILE',
    ),
)


def file_section() -> str:
    rows = (
        ("path", "`<storage>/transcripts/<run-id>.jsonl`; only transcripts end in `.jsonl` in that folder"),
        ("mode", f"{LOG_MODE:04o}, whatever the umask is"),
        ("opened with", "`O_APPEND`; one process at a time writes a file, any number read it"),
        ("atomicity", "one `write()` per line, one line at a time"),
        ("encoding", "UTF-8, one JSON object per line, lines end with LF"),
        ("order", "`seq` from 1 without gaps"),
        ("longest line", f"{LOG_LINE_BYTES // 1024**2} MiB, its end included"),
        ("version", f"`format` of the first `run.started`, today {FORMAT}"),
    )
    aside = (
        "After a crash the file may end in half a line. The next writer sets that aside in `<run-id>.torn` beside the "
        "file and goes on with the next `seq`; readers never give it out."
    )
    return section("The file", table(("property", "value"), rows), aside)


def durability_section() -> str:
    docs = field_docs(Durability)
    rows = [(code(level.value), docs[level.name]) for level in Durability]
    said = "When an event counts as written is a choice (`shopfloor run --durability`); `group` is the default."
    return section("Durability", said, table(("level", "meaning"), rows))


def fanout_section() -> str:
    stats = ", ".join(code(name) for name in SubscriberStats.__struct_fields__)
    first, last = Gap.__struct_encode_fields__
    said = (
        "In the process that writes, `Recorder.subscribe()` gives the events live. An event is in the file before any "
        "subscriber sees it, and a subscriber gets the very bytes of the file."
    )
    rows = (
        ("buffer", f"{SUBSCRIBER_EVENTS} events per subscriber by default"),
        ("when it is full", "the newest events are dropped, for that subscriber alone"),
        ("what it is told", f'{summary(Gap)} In JSON: `{{"{first}", "{last}"}}`'),
        ("filling a gap", "read the file from that `seq` on"),
        ("counted in", f"`stats()`: {stats}"),
        ("said in the log of the process", f"a warning, at most every {DROP_WARNING_SECONDS:g} s per subscriber"),
        ("the writer", "never waits for a subscriber"),
        ("`close()`", "twice is fine, for the recorder and for a subscriber"),
    )
    return section("Live events", said, table(("what", "how"), rows))


def masking_section() -> str:
    source = SOURCE / "log" / "masking.py"
    shapes: dict[str, str] = constant(source, "_KEY_SHAPES")
    kept: set[str] = constant(source, "_FORMAT_FIELDS")
    pieces = (
        "The output of a command comes in pieces, so an end of it that may be the beginning of a secret is held back "
        f"until the rest has come, at most {MASK_LOOKBACK_BYTES // 1024} KiB of it; elsewhere a secret torn between "
        "two events is not found."
    )
    limits = "\n".join(
        (
            f"- A secret has at least {SECRET_MIN_CHARS} characters.",
            f"- A secret is found inside one string. {pieces}",
            "- A secret that was encoded first (base64, percent signs) is not found.",
            f"- Text under the keys {', '.join(code(key) for key in sorted(kept))} is left as it is.",
            "- The exact bytes of output that is not UTF-8 (`raw`) are not kept when something is masked.",
            "- What a command by itself prints to the terminal is not masked; only the transcript is.",
        )
    )
    said = (
        "By default nothing is masked: prompts, commands, output and arguments are recorded as they are. Masking is "
        f"asked for when a run begins, and happens before the event is written; `{MASK}` stands in place of the secret."
    )
    rows = (
        ("`--mask-env NAME`", "the value of that variable"),
        ("`--mask-keys`", f"what looks like one of these: {', '.join(shapes)}"),
        ("`Masking(values, key_shapes=…)`", "the same in Python, as `Recorder(mask=…)`"),
    )
    return section("Masking", said, table(("asked for by", "masks"), rows), "What it does not do:", limits)


def jq_section() -> str:
    lines = "\n\n".join(f"# {title}\n{line}" for title, line in JQ_LINES)
    return section("Asking with jq", "`FILE` is a transcript.", fenced("console", lines))


def example_section() -> str:
    raw = EXAMPLE.read_text(encoding="utf-8")
    return section(
        "A worked example",
        "A command that prints a line to each of its streams and fails:",
        fenced("json", raw),
        "The same, by `shopfloor show command.jsonl`:",
        fenced("text", _shown()),
    )


def _shown() -> str:
    command = [sys.executable, "-m", "shopfloor", "show", str(EXAMPLE), "--color", "never"]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=True, env=env).stdout
