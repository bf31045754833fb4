"""Transcripts with malicious text in every place where a log can have text."""

from __future__ import annotations

from collections.abc import Iterator

from tests.browser.logs import agent_run, assistant_message, call, text, tool_result, write_log

from shopfloor.log import (
    AssistantMessage,
    FileChange,
    Note,
    Payload,
    RunError,
    StreamBlock,
    ThinkingBlock,
)
from shopfloor.record import Storage

OTHER_ORIGIN = "https://evil.example"
SCRIPT = "window.pwned=1"
HTML = [
    f"<script>{SCRIPT}</script>",
    f"<img src=x onerror='{SCRIPT}'>",
    "<img src='/pwned.png'>",
    f"<img src='{OTHER_ORIGIN}/pwned.png'>",
    f"<svg onload='{SCRIPT}'><script>{SCRIPT}</script><image href='{OTHER_ORIGIN}/pwned.svg'/></svg>",
    f"<math><mi xlink:href='javascript:{SCRIPT}'>click</mi></math>",
    f"<iframe srcdoc='<script>parent.{SCRIPT}</script>'></iframe><iframe src='{OTHER_ORIGIN}/pwned'></iframe>",
    f"<object data='{OTHER_ORIGIN}/pwned'></object><embed src='{OTHER_ORIGIN}/pwned'>",
    f"<form action='{OTHER_ORIGIN}/pwned'><input autofocus onfocus='{SCRIPT}'><button>Run</button></form>",
    f"<base href='{OTHER_ORIGIN}/'><meta http-equiv='refresh' content='0;url={OTHER_ORIGIN}/pwned'>",
    f"<link rel='stylesheet' href='{OTHER_ORIGIN}/pwned.css'><style>@import url('{OTHER_ORIGIN}/pwned.css'); main{{display:none}}</style>",
    f"<p style=\"background:url('{OTHER_ORIGIN}/pwned.png');position:fixed;inset:0\">covered</p>",
    f"<details open ontoggle='{SCRIPT}'><summary>x</summary></details><video><source onerror='{SCRIPT}'></video>",
    f"<a href='javascript:{SCRIPT}'>click</a><a href='data:text/html,<script>{SCRIPT}</script>'>click</a>",
    f"&lt;script&gt;{SCRIPT}&lt;/script&gt; &#60;img src=x onerror={SCRIPT}&#62;",
    f"</textarea></title></style></script><script>{SCRIPT}</script>",
]
MARKDOWN = [
    f"[click](javascript:{SCRIPT})",
    f"[click](JaVaScRiPt:{SCRIPT})",
    f"[click](&#106;avascript:{SCRIPT})",
    f"[click](\x01javascript:{SCRIPT})",
    f"[click](javascript\\:{SCRIPT})",
    f"[click](vbscript:{SCRIPT}) [click](file:///etc/passwd) [click](data:text/html;base64,PHNjcmlwdD4=)",
    f"<javascript:{SCRIPT}> <data:text/html,x>",
    f"[a reference][evil]\n\n[evil]: javascript:{SCRIPT}",
    f"![a picture]({OTHER_ORIGIN}/pwned.png) ![a picture](//evil.example/pwned.png) ![a picture](/pwned.png)",
    f"![a picture](javascript:{SCRIPT}) ![a picture](data:image/svg+xml,<svg onload={SCRIPT}>)",
    f"[![nested]({OTHER_ORIGIN}/pwned.png)](javascript:{SCRIPT})",
    f"[a title]({OTHER_ORIGIN} \"' onmouseover='{SCRIPT}\")",
    f"```html\n<script>{SCRIPT}</script>\n```\n\n`<img src=x onerror={SCRIPT}>`",
    "# constructor\n\n[^__proto__] and [^1]\n\n[^1]: a footnote\n\n- [ ] a box\n- [x] a box",
]
TRICKS = [
    "\u202egnp.exe\u202c is a picture, \u2066says\u2069 who\u200bever",
    ">" * 400 + " deep",
    "**" * 5_000,
    "[" * 5_000,
    "`" * 5_000,
    "\n".join("  " * depth + "- deep" for depth in range(200)),
    "\x1b]8;;javascript:window.pwned=1\x07click\x1b]8;;\x07 \x1b[2J\x1b[1;1H\x1b[999999999;38;5;999m text",
    "\x00\x07\x1b \ufffd \ufeff",
]
ANSI_LINKS = TRICKS[6]
ALL = [*HTML, *MARKDOWN, *TRICKS]
TABLE = "| a | b |\n|---|---|\n" + "".join(f"| {row} | <img src='/pwned.png'> |\n" for row in range(5_000))
ONE_LINE = "x" * 1_000_000


def _events() -> Iterator[Payload]:
    everything = "\n\n".join([*HTML, *MARKDOWN])
    for hostile in ALL:
        yield text(hostile)
    yield assistant_message(ThinkingBlock(fidelity="agent_emitted", thinking=everything))
    yield assistant_message(StreamBlock(fidelity="agent_emitted", chunk=everything, unparsed=True))
    yield AssistantMessage(note=Note(kind="warning", message=everything, code=HTML[0]), blocks=[])
    for number, hostile in enumerate(ALL):
        name = hostile[:60] if number % 4 == 0 else ("Bash", "Edit", "WebFetch", "__proto__")[number % 4]
        arguments = {
            "command": hostile,
            "file_path": hostile,
            "url": hostile,
            "constructor": hostile,
            "__proto__": {"a": hostile},
        }
        yield call(name, f"c{number}", **arguments)
        change = FileChange(
            path=hostile, action="modify", diff=f"--- {hostile}\n+++ {hostile}\n@@ -1 +1 @@\n-{hostile}\n+{hostile}\n"
        )
        error = hostile if number % 3 == 0 else None
        yield tool_result(name, f"c{number}", hostile, files=[change] if number % 2 else None, error=error)
    for media in ("text/html", "image/svg+xml", f'image/png" onerror="{SCRIPT}'):
        picture = {"type": "image", "source": {"type": "base64", "media_type": media, "data": "PHNjcmlwdD4="}}
        remote = {"type": "image", "source": {"type": "url", "url": f"{OTHER_ORIGIN}/pwned.png"}}
        yield call("Look", f"i-{media}", path=media)
        yield tool_result("Look", f"i-{media}", [picture, remote])


def write_hostile_text(storage: Storage) -> str:
    everything = "\n\n".join([*HTML, *MARKDOWN])
    error = RunError(code=HTML[0], message=everything, retryable=False)
    run = agent_run(everything, *_events(), owner="malice", status="failed", error=error, result=everything)
    return write_log(storage, run)


def write_shapes(storage: Storage) -> str:
    """Write a run with text of an extreme shape: a table of 5,000 rows, and a megabyte on one line."""
    payloads = (text(TABLE), text(ONE_LINE), call("Bash", "l", command=ONE_LINE), tool_result("Bash", "l", ONE_LINE))
    return write_log(storage, agent_run("Odd shapes", *payloads, text("after the shapes"), owner="malice"))
