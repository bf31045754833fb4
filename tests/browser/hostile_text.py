"""Transcripts of somebody who wants their text to do something: wherever a text can stand in a log."""

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

ELSEWHERE = "https://evil.example"
RUNS = "window.pwned=1"
HTML = [
    f"<script>{RUNS}</script>",
    f"<img src=x onerror='{RUNS}'>",
    "<img src='/pwned.png'>",
    f"<img src='{ELSEWHERE}/pwned.png'>",
    f"<svg onload='{RUNS}'><script>{RUNS}</script><image href='{ELSEWHERE}/pwned.svg'/></svg>",
    f"<math><mi xlink:href='javascript:{RUNS}'>click</mi></math>",
    f"<iframe srcdoc='<script>parent.{RUNS}</script>'></iframe><iframe src='{ELSEWHERE}/pwned'></iframe>",
    f"<object data='{ELSEWHERE}/pwned'></object><embed src='{ELSEWHERE}/pwned'>",
    f"<form action='{ELSEWHERE}/pwned'><input autofocus onfocus='{RUNS}'><button>Run</button></form>",
    f"<base href='{ELSEWHERE}/'><meta http-equiv='refresh' content='0;url={ELSEWHERE}/pwned'>",
    f"<link rel='stylesheet' href='{ELSEWHERE}/pwned.css'><style>@import url('{ELSEWHERE}/pwned.css'); main{{display:none}}</style>",
    f"<p style=\"background:url('{ELSEWHERE}/pwned.png');position:fixed;inset:0\">covered</p>",
    f"<details open ontoggle='{RUNS}'><summary>x</summary></details><video><source onerror='{RUNS}'></video>",
    f"<a href='javascript:{RUNS}'>click</a><a href='data:text/html,<script>{RUNS}</script>'>click</a>",
    f"&lt;script&gt;{RUNS}&lt;/script&gt; &#60;img src=x onerror={RUNS}&#62;",
    f"</textarea></title></style></script><script>{RUNS}</script>",
]
MARKDOWN = [
    f"[click](javascript:{RUNS})",
    f"[click](JaVaScRiPt:{RUNS})",
    f"[click](&#106;avascript:{RUNS})",
    f"[click](\x01javascript:{RUNS})",
    f"[click](vbscript:{RUNS}) [click](file:///etc/passwd) [click](data:text/html;base64,PHNjcmlwdD4=)",
    f"<javascript:{RUNS}> <data:text/html,x>",
    f"[a reference][evil]\n\n[evil]: javascript:{RUNS}",
    f"![a picture]({ELSEWHERE}/pwned.png) ![a picture](//evil.example/pwned.png) ![a picture](/pwned.png)",
    f"![a picture](javascript:{RUNS}) ![a picture](data:image/svg+xml,<svg onload={RUNS}>)",
    f"[![nested]({ELSEWHERE}/pwned.png)](javascript:{RUNS})",
    f"[a title]({ELSEWHERE} \"' onmouseover='{RUNS}\")",
    f"```html\n<script>{RUNS}</script>\n```\n\n`<img src=x onerror={RUNS}>`",
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
    for said in ALL:
        yield text(said)
    yield assistant_message(ThinkingBlock(fidelity="agent_emitted", thinking=everything))
    yield assistant_message(StreamBlock(fidelity="agent_emitted", chunk=everything, unparsed=True))
    yield AssistantMessage(note=Note(kind="warning", message=everything, code=HTML[0]), blocks=[])
    for number, said in enumerate(ALL):
        name = said[:60] if number % 4 == 0 else ("Bash", "Edit", "WebFetch", "__proto__")[number % 4]
        given = {"command": said, "file_path": said, "url": said, "constructor": said, "__proto__": {"a": said}}
        yield call(name, f"c{number}", **given)
        change = FileChange(path=said, action="modify", diff=f"--- {said}\n+++ {said}\n@@ -1 +1 @@\n-{said}\n+{said}\n")
        error = said if number % 3 == 0 else None
        yield tool_result(name, f"c{number}", said, files=[change] if number % 2 else None, error=error)
    for media in ("text/html", "image/svg+xml", f'image/png" onerror="{RUNS}'):
        picture = {"type": "image", "source": {"type": "base64", "media_type": media, "data": "PHNjcmlwdD4="}}
        elsewhere = {"type": "image", "source": {"type": "url", "url": f"{ELSEWHERE}/pwned.png"}}
        yield call("Look", f"i-{media}", path=media)
        yield tool_result("Look", f"i-{media}", [picture, elsewhere])


def write_hostile_text(storage: Storage) -> str:
    everything = "\n\n".join([*HTML, *MARKDOWN])
    error = RunError(code=HTML[0], message=everything, retryable=False)
    run = agent_run(everything, *_events(), owner="malice", status="failed", error=error, result=everything)
    return write_log(storage, run)


def write_shapes(storage: Storage) -> str:
    """Nothing evil but the shape: a table of 5,000 rows, and a megabyte on one line."""
    said = (text(TABLE), text(ONE_LINE), call("Bash", "l", command=ONE_LINE), tool_result("Bash", "l", ONE_LINE))
    return write_log(storage, agent_run("Odd shapes", *said, text("after the shapes"), owner="malice"))
