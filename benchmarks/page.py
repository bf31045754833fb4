"""The page in a real browser: time to first paint, size of the first load, and growth of its memory.

`python -m benchmarks.page --minutes 10` measures only the memory, for that long.
"""

from __future__ import annotations

import argparse
import gzip
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from benchmarks.harness import Comparison, Result, interleave, log_progress, scratch
from benchmarks.sample import STEP, message
from benchmarks.server_process import running_server
from shopfloor.adapters.local import LocalHost
from shopfloor.adapters.sqlite import SqliteStore
from shopfloor.client import Address
from shopfloor.log import (
    AssistantMessage,
    Cost,
    Line,
    Payload,
    RunCompleted,
    RunStarted,
    TextBlock,
    ToolCall,
    ToolResult,
    Usage,
    encode,
    format_timestamp,
    new_run_id,
)
from shopfloor.ports import ViewUpdate
from shopfloor.record import Durability, Recorder, Storage
from shopfloor.server.page_files import INDEX, PAGE_FOLDER
from shopfloor.views import ENDED, QUARTER_SECONDS, SPENDING, STARTED, TOOL, RunRow, Spending, StatChange, UsageTotal

BUNDLE_LIMIT = 250_000
"""The size limit for the scripts and styles of the first view, in gzipped bytes."""
EVENTS_PER_SECOND = 50
PAGE_CACHED_EVENTS = 12_000
"""The number of events of a log that the page caches: its memory grows up to there."""
FILL_EVENTS, FILL_PER_SECOND = 500, 400
_FIRST_MS = 1_767_225_600_000
_STEP_MS = 20_000
_TOOLS = ("Bash", "Edit", "Read")
_BATCH = 1_000
_TIMEOUT_MS = 60_000
_LEAST_GROWTH = 1_000

# Two frames after the first row exists, it has been painted.
_WATCH = """
const look = () => {
  if (!document.querySelector(window.name)) return requestAnimationFrame(look);
  const painted = () => { document.documentElement.dataset.painted = performance.now(); };
  requestAnimationFrame(() => requestAnimationFrame(painted));
};
requestAnimationFrame(look);
"""


# The data.


def _row(number: int, started_at: int) -> ViewUpdate:
    run_id = new_run_id()
    row = RunRow(
        id=run_id,
        root_run_id=run_id,
        name="repair",
        kind="agent",
        worker_type="claude-code",
        agent_id=f"owner-{number % 50}",
        channel_id=f"channel-{number % 20}",
        channel_name=f"Channel {number % 20}",
        task=_task(number),
        status="completed",
        started_at=format_timestamp(started_at),
        completed_at=format_timestamp(started_at + 61_000),
        duration_ms=61_000,
        spending=Spending(UsageTotal(Usage(input=41_234, output=2_310), Cost(usd=0.0421, source="agent"))),
        last_seq=120,
    )
    started, ended = (at // (QUARTER_SECONDS * 1000) for at in (started_at, started_at + 61_000))
    stats = [
        StatChange(1, started, STARTED, amount=1),
        StatChange(120, ended, ENDED, "completed", amount=1),
        StatChange(119, ended, TOOL, _TOOLS[number % len(_TOOLS)], amount=3),
        StatChange(119, ended, SPENDING, "claude-opus-5", "anthropic", amount=42_100_000, tokens=43_544),
    ]
    return ViewUpdate(row=row, state=b"", timeline=[], stats=stats)


def _task(number: int) -> str:
    return f"Look at what the nightly build says about module {number} and repair it"


async def _fill(storage: Storage, runs: int) -> None:
    store = await SqliteStore.open(storage.database)
    # The overview shows the days up to today.
    first_ms = round(time.time() * 1000) - runs * _STEP_MS
    try:
        for first in range(0, runs, _BATCH):
            numbers = range(first, min(first + _BATCH, runs))
            await store.apply([_row(number, first_ms + number * _STEP_MS) for number in numbers])
    finally:
        await store.close()


def _message_text(number: int) -> str:
    return f"Event {number}: I look at module {number} next, and then at what depends on it."


def _payloads(events: int) -> Iterator[Payload]:
    yield RunStarted(name="bench", kind="agent", attempt=1, host="bench", task=f"{events:,} events")
    for number in range(2, events):
        match number % 3:
            case 0:
                yield AssistantMessage(blocks=[TextBlock(fidelity="agent_emitted", text=_message_text(number))])
            case 1:
                arguments = {"command": f"make module-{number}"}
                yield ToolCall(
                    name="Bash", call_id=f"c{number}", input=arguments, output=None, fidelity="agent_emitted"
                )
            case _:
                name, output = f"c{number - 1}", f"module {number} is up to date"
                yield ToolResult(name="Bash", call_id=name, input=None, output=output, fidelity="agent_emitted")
    yield RunCompleted(name="bench", kind="agent", status="completed", result="done")


def _write_log(storage: Storage, events: int) -> str:
    run_id = new_run_id()
    storage.transcripts.mkdir(parents=True, exist_ok=True)
    with storage.log_path(run_id).open("wb") as file:
        for seq, payload in enumerate(_payloads(events), 1):
            kind = payload.event_type
            line = Line(
                seq=seq,
                run_id=run_id,
                type=kind,
                path="" if kind.startswith("run.") else STEP,
                iteration=0,
                timestamp=format_timestamp(_FIRST_MS + seq * 10),
                payload=payload,
            )
            file.write(encode(line) + b"\n")
    return run_id


def _plain(path: Path, rows: Iterator[str]) -> str:
    """Write the peer, the same texts as a plain table in a file, and return its URL."""
    cells = "".join(f"<tr><td>done<td>{text}<td>1m 1s\n" for text in rows)
    path.write_text(f"<!doctype html><meta charset=utf-8><title>plain</title><table>{cells}</table>", encoding="utf-8")
    return path.as_uri()


# The browser.


@contextmanager
def _browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        raise SystemExit("Chromium is not installed: apt-get install chromium")
    if not (PAGE_FOLDER / INDEX).is_file():
        raise SystemExit("the page is not built: make page")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--enable-precise-memory-info"]
        )
        yield browser
        browser.close()


def _logged_in(browser: Browser, address: Address) -> BrowserContext:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(_TIMEOUT_MS)
    page = context.new_page()
    page.goto(f"{address.url}/login?token={address.token}&next=/api/docs")
    page.close()
    return context


def _seconds_to_paint(context: BrowserContext, url: str, selector: str) -> float:
    """Return the seconds from navigation until the first match is painted, in a new tab."""
    page = context.new_page()
    page.add_init_script(f"window.name = {selector!r};{_WATCH}")
    page.goto(url, wait_until="commit")
    taken = float(page.locator("html[data-painted]").get_attribute("data-painted") or 0)
    page.close()
    return taken / 1000


def _compared(measure: str, found: Comparison, peer: str) -> Result:
    return Result(
        measure=measure,
        ours=f"{found.ours * 1e3:.0f} ms",
        against=f"{peer}: {found.theirs * 1e3:.0f} ms",
        ratio=found.ratio,
    )


# The measurements.


def measure_painting(folder: Path, runs: int, sizes: tuple[int, ...], rounds: int) -> list[Result]:
    storage = Storage(folder / "storage")
    storage.root.mkdir()
    anyio.run(_fill, storage, runs)
    logs = {events: _write_log(storage, events) for events in sizes}
    results: list[Result] = []
    with running_server(storage) as address, _browser() as browser:
        context = _logged_in(browser, address)
        _wait_until_listed(context, address, len(logs) + runs)
        plain = _plain(folder / "runs.html", (_task(number) for number in range(runs)))
        home = f"{address.url}/agents/all/workers"
        found = interleave(
            lambda: _seconds_to_paint(context, home, "a[data-run]"),
            lambda: _seconds_to_paint(context, plain, "tr"),
            rounds,
        )
        results.append(_compared(f"a list of {runs:,} runs, first painted", found, "a plain table of as many rows"))
        found = interleave(
            lambda: _seconds_to_paint(context, address.url, ".overview .ranked"),
            lambda: _seconds_to_paint(context, plain, "tr"),
            rounds,
        )
        results.append(_compared(f"the overview of {runs:,} runs, painted", found, "a plain table of as many rows"))
        for events, run_id in logs.items():
            log_progress(f"a transcript of {events:,} events")
            plain = _plain(folder / f"{events}.html", map(_message_text, range(events)))
            url = f"{home}?worker={run_id}"
            found = interleave(
                lambda url=url: _seconds_to_paint(context, url, '[aria-label="Transcript"] [data-seq]'),
                lambda plain=plain: _seconds_to_paint(context, plain, "tr"),
                rounds,
            )
            measure = f"a transcript of {events:,} events, first painted"
            results.append(_compared(measure, found, "a plain table of as many rows"))
    return results


def _wait_until_listed(context: BrowserContext, address: Address, runs: int) -> None:
    deadline = time.monotonic() + _TIMEOUT_MS / 1000
    while context.request.get(f"{address.url}/api/agents/workers?limit=1").json()["total"] < runs:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the list does not show {runs:,} runs after {_TIMEOUT_MS / 1000:.0f} s")
        time.sleep(0.1)


def measure_bundle() -> list[Result]:
    """Measure the scripts and styles that index.html loads for the first view, and all scripts and styles."""
    index = (PAGE_FOLDER / INDEX).read_text(encoding="utf-8")
    first = [PAGE_FOLDER / name for name in re.findall(r'(?:src|href)="/(assets/[^"]+\.(?:js|css))"', index)]
    every = [path for path in (PAGE_FOLDER / "assets").iterdir() if path.suffix in {".js", ".css"}]
    if not first:
        raise RuntimeError("index.html names no script")
    return [
        _sized("scripts and styles of the first view, gzipped", first, floor=1.0),
        _sized("the same with everything that is loaded later, when a run is opened", every),
    ]


def _sized(measure: str, paths: list[Path], *, floor: float | None = None) -> Result:
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in paths)
    against = f"the limit: {BUNDLE_LIMIT / 1e3:.0f} KB"
    return Result(measure=measure, ours=f"{size / 1e3:.0f} KB", against=against, ratio=BUNDLE_LIMIT / size, floor=floor)


class _WatchedRun:
    """A live run, and a tab that follows it."""

    def __init__(self, context: BrowserContext, address: Address, recorder: Recorder, host: str) -> None:
        self._recorder = recorder
        run_started = RunStarted(name="bench", kind="agent", attempt=1, host=host, task="a run that goes on")
        self.written = recorder.append(run_started).seq
        self._page = context.new_page()
        self._page.goto(f"{address.url}/agents/all/workers?worker={recorder.run_id}")
        self._session = context.new_cdp_session(self._page)

    def write(self, events: int, per_second: int) -> None:
        started_at = time.monotonic()
        for number in range(events):
            time.sleep(max(0.0, started_at + number / per_second - time.monotonic()))
            self.written = self._recorder.append(message(_message_text(self.written + 1)), path=STEP).seq
        last = f'[aria-label="Transcript"] [data-seq="{self.written}"]'
        self._page.wait_for_selector(last, state="attached")

    def heap(self) -> int:
        """Return the bytes in use after garbage collection."""
        self._session.send("HeapProfiler.enable")
        for _ in range(3):
            self._session.send("HeapProfiler.collectGarbage")
        return int(self._session.send("Runtime.getHeapUsage")["usedSize"])


def measure_memory(folder: Path, fill: int, seconds: float) -> Result:
    storage = Storage(folder / "live")
    run_id = new_run_id()
    with running_server(storage) as address, LocalHost(storage) as host, _browser() as browser:
        storage.announce(run_id)
        with Recorder(storage.log_path(run_id), run_id, new=True, durability=Durability.OS) as recorder:
            watched = _WatchedRun(_logged_in(browser, address), address, recorder, host.id)
            for _ in range(0, fill, FILL_EVENTS):
                watched.write(FILL_EVENTS, FILL_PER_SECOND)
            before, events = watched.heap(), round(seconds * EVENTS_PER_SECOND)
            size = storage.log_path(run_id).stat().st_size
            log_progress(
                f"{before / 1e6:.1f} MB after {fill:,} events; {seconds:.0f} s at {EVENTS_PER_SECOND}/s follow"
            )
            watched.write(events, EVENTS_PER_SECOND)
            after = watched.heap()
            written = storage.log_path(run_id).stat().st_size - size
            recorder.append(RunCompleted(name="bench", kind="agent", status="completed"))
    growth = (after - before) * 1_000 / events
    events_bytes = written * 1_000 / events
    return Result(
        measure=f"growth of the page's heap per 1,000 events, {seconds / 60:.1f} min at {EVENTS_PER_SECOND}/s",
        ours=f"{growth / 1e3:.0f} KB (from {before / 1e6:.1f} to {after / 1e6:.1f} MB)",
        against=f"the events themselves: {events_bytes / 1e3:.0f} KB",
        ratio=events_bytes / max(growth, _LEAST_GROWTH),
    )


def run(*, quick: bool) -> list[Result]:
    runs, sizes, rounds = (2_000, (1_000,), 2) if quick else (100_000, (1_000, 100_000), 7)
    with scratch() as folder:
        results = measure_bundle()
        log_progress(f"a list of {runs:,} runs")
        results += measure_painting(folder, runs, sizes, rounds)
        log_progress("memory while a run is followed")
        results.append(measure_memory(folder, 500 if quick else PAGE_CACHED_EVENTS, 3 if quick else 60))
    return results


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description="Watch the memory of the page.")
    parser.add_argument("--minutes", type=float, default=10, help="for how long, at 50 events a second (default: 10)")
    minutes = parser.parse_args().minutes
    with scratch() as folder:
        found = measure_memory(folder, PAGE_CACHED_EVENTS, minutes * 60)
    print(f"{found.measure}: {found.ours}; {found.against}; ratio {found.ratio:.1f}")


if __name__ == "__main__":
    sys.exit(main())
