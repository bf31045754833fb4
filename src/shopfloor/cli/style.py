"""Text for a terminal: colors, durations, and escapes for characters that could control the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from shopfloor.cli.limits import TRACEBACK_TAIL_LINES
from shopfloor.control_characters import C0_CONTROLS, C1_CONTROLS, DEL, DIRECTION_CONTROLS, REPLACEMENT
from shopfloor.log import BasedOn, ClientInfo

_CODES: Final = {"bold": "1", "dim": "2", "italic": "3", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_VISIBLE: Final = {code: 0x2400 + code for code in C0_CONTROLS} | {
    DEL: 0x2421,
    **dict.fromkeys((*C1_CONTROLS, *DIRECTION_CONTROLS), REPLACEMENT),
}


class Style:
    """Colors for text, or no colors where they are disabled."""

    def __init__(self, *, enabled: bool) -> None:
        self.enabled = enabled

    @classmethod
    def from_choice(cls, choice: str) -> Style:
        """Return the style for the value of `--color`: auto, always or never."""
        if choice != "auto":
            return cls(enabled=choice == "always")
        return cls(enabled=sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")

    def paint(self, text: str, *looks: str) -> str:
        """Return `text` with these colors and attributes."""
        if not self.enabled or not text:
            return text
        return f"\x1b[{';'.join(_CODES[look] for look in looks)}m{text}\x1b[0m"


def escape_controls(text: str) -> str:
    """Return `text` with visible symbols for its control characters. The text of a transcript is not trusted."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def one_line(text: str, width: int) -> str:
    """Return `text` as one line of at most `width` characters, ending with … if it was truncated."""
    line = " ".join(escape_controls(text[: width * 4]).split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def format_duration(ms: int | None) -> str:
    """Return a duration such as `1 h 05 min`, `2.3 s` or `11 ms`; empty for None."""
    if ms is None:
        return ""
    seconds, rest = divmod(ms, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    if minutes:
        return f"{minutes} min {seconds:02d} s"
    return f"{seconds}.{rest // 100} s" if seconds else f"{rest} ms"


def format_cost(usd: float | None) -> str:
    """Return an amount in dollars: `$12.34`, with four digits below a dollar; empty for None."""
    if usd is None:
        return ""
    return f"${usd:,.2f}" if abs(usd) >= 1 or not usd else f"${usd:.4f}"


def format_count(number: int) -> str:
    """Return a number in at most five characters: `950`, `41.2k`, `3.1M`."""
    for size, unit in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return str(number)


def format_age(timestamp: str) -> str:
    """Return the time since `timestamp` in one unit: `just now`, `5 min`, `3 h`, `12 d`."""
    try:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds()
    except (ValueError, TypeError):
        return escape_controls(timestamp)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return "just now"


def format_client(client: ClientInfo | None) -> str | None:
    """Return the client of a run with its version and session: `claude-code 2.1.0 · session 5f3a`."""
    if client is None:
        return None
    program = f"{client.name} {client.version}" if client.version else client.name
    return f"{program} · session {client.session_id}" if client.session_id else program


def format_based_on(based_on: BasedOn | None) -> str | None:
    """Return how a run was made from an earlier one: `fork of 5f3a… at event 17`; None without one."""
    if based_on is None:
        return None
    word = "to" if based_on.kind == "reply" else "of"
    at = f" at event {based_on.seq:,}" if based_on.seq is not None else ""
    return f"{based_on.kind} {word} {based_on.run_id}{at}"


def format_later_runs(runs: Sequence[tuple[str, str]]) -> str | None:
    """Return the runs based on a run, given as pairs of id and kind; None without any."""
    return ", ".join(f"{kind} {run_id[:8]}" for run_id, kind in runs) or None


def format_traceback(text: str, *, full: bool) -> list[str]:
    """Return the lines of a traceback: the last ones, or all of them if it is to be shown in full."""
    lines = [escape_controls(line) for line in text.splitlines()]
    folded = 0 if full else len(lines) - TRACEBACK_TAIL_LINES
    if folded <= 1:
        return lines
    return [f"… {folded:,} lines folded; --full shows them", *lines[folded:]]
