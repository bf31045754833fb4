"""The sections of docs/reference/transcript.md about writing and reading transcripts."""

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

# A title and a command each; FILE is a transcript.
JQ_LINES: tuple[tuple[str, str], ...] = (
    ("Everything, formatted", "jq . FILE"),
    ("Every tool call and its result", """jq 'select(.type == "tool.call" or .type == "tool.result")' FILE"""),
    (
        "The assistant's text, or the command's output",
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
        "The output to stderr",
        'jq -j \'select(.type == "message.assistant") | .payload.blocks[] | select(.stream == "stderr") | .text\' FILE',
    ),
)


def file_section() -> str:
    rows = (
        ("path", "`<storage>/transcripts/<run-id>.jsonl`; only transcripts end in `.jsonl` in that folder"),
        ("mode", f"{LOG_MODE:04o}, independent of the umask"),
        ("opened with", "`O_APPEND`; one process at a time writes a file, any number of processes read it"),
        ("atomicity", "one `write()` per line, one line at a time"),
        ("encoding", "UTF-8, one JSON object per line, lines end with LF"),
        ("order", "`seq` from 1 without gaps"),
        ("longest line", f"{LOG_LINE_BYTES // 1024**2} MiB, including its line feed"),
        ("version", f"`format` of the first `run.started`, currently {FORMAT}"),
    )
    aside = (
        "After a crash the file may end with an incomplete line. The next writer moves it to `<run-id>.torn` beside "
        "the file and continues with the next `seq`; readers never return it."
    )
    return section("The file", table(("property", "value"), rows), aside)


def durability_section() -> str:
    docs = field_docs(Durability)
    rows = [(code(level.value), docs[level.name]) for level in Durability]
    intro = "`shopfloor run --durability` decides when an event counts as written; `group` is the default."
    return section("Durability", intro, table(("level", "meaning"), rows))


def fanout_section() -> str:
    stats = ", ".join(code(name) for name in SubscriberStats.__struct_fields__)
    first, last = Gap.__struct_encode_fields__
    intro = (
        "In the process that writes the log, `Recorder.subscribe()` delivers the events live. An event is in the file "
        "before any subscriber sees it, and a subscriber gets the same bytes as in the file."
    )
    rows = (
        ("buffer", f"{SUBSCRIBER_EVENTS} events per subscriber by default"),
        ("when it is full", "the newest events are dropped, for that subscriber alone"),
        ("notice of dropped events", f'{summary(Gap)} In JSON: `{{"{first}", "{last}"}}`'),
        ("filling a gap", "read the file from that `seq` on"),
        ("counted in", f"`stats()`: {stats}"),
        ("in the log of the process", f"a warning, at most every {DROP_WARNING_SECONDS:g} s per subscriber"),
        ("the writer", "never waits for a subscriber"),
        ("`close()`", "may be called twice, on the recorder and on a subscriber"),
    )
    return section("Live events", intro, table(("what", "how"), rows))


def masking_section() -> str:
    source = SOURCE / "log" / "masking.py"
    shapes: dict[str, str] = constant(source, "_KEY_SHAPES")
    unmasked_keys: set[str] = constant(source, "_FORMAT_FIELDS")
    chunks = (
        "The output of a command comes in parts, so a part's end that may be the start of a secret is held back until "
        f"the rest has come, at most {MASK_LOOKBACK_BYTES // 1024} KiB; elsewhere a secret that is split between two "
        "events is not found."
    )
    limits = "\n".join(
        (
            f"- A secret has at least {SECRET_MIN_CHARS} characters.",
            f"- A secret is found inside one string. {chunks}",
            "- A secret that was encoded first (base64, percent signs) is not found.",
            f"- Text under the keys {', '.join(code(key) for key in sorted(unmasked_keys))} is left as it is.",
            "- The exact bytes of output that is not UTF-8 (`raw`) are not recorded when something is masked.",
            "- Only the transcript is masked, not what a command prints to the terminal.",
        )
    )
    intro = (
        "By default nothing is masked: prompts, commands, output and arguments are recorded unchanged. Masking is "
        f"requested when a run starts, and happens before an event is written; `{MASK}` replaces the secret."
    )
    rows = (
        ("`--mask-env NAME`", "the value of that variable"),
        ("`--mask-keys`", f"text that looks like one of these: {', '.join(shapes)}"),
        ("`Masking(values, key_shapes=…)`", "the same in Python, as `Recorder(mask=…)`"),
    )
    return section("Masking", intro, table(("requested by", "masks"), rows), "Its limits:", limits)


def jq_section() -> str:
    lines = "\n\n".join(f"# {title}\n{line}" for title, line in JQ_LINES)
    return section("Queries with jq", "`FILE` is a transcript.", fenced("console", lines))


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
