"""Streams: a run's log with reconnects, and everything that one page shows."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec
import pytest
from tests.server.engine_server import engine_server, write_workers
from tests.server.recorded_runs import (
    RecordedRuns,
    assistant,
    open_recorder,
    record,
    run_completed,
    run_started,
    user,
    write,
)
from tests.server.server import RunningServer, open_server, queue_run
from tests.server.sse import SseEvent, open_stream, read_stream
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.adapters.local import LocalBus, LocalLogReader, LocalLogs
from shopfloor.engine import prune
from shopfloor.limits import SERVER_STOP_SECONDS, TRUNCATED_TEXT_CHARS
from shopfloor.log import Delta, ToolResult, new_run_id
from shopfloor.record import Storage
from shopfloor.server import ConnectionLimits
from shopfloor.server.limits import QUEUED_CHECK_SECONDS
from shopfloor.wiring import local_backend

END = SseEvent("end", "{}")


def lines(storage: Storage, run_id: str) -> list[SseEvent]:
    """Return the events of a run's log as its stream should send them."""
    raw = storage.log_path(run_id).read_text(encoding="utf-8").split("\n")[:-1]
    return [SseEvent("message", line, str(seq)) for seq, line in enumerate(raw, 1)]


def stream_of(run_id: str) -> str:
    return f"/api/runs/{run_id}/stream"


# A run's stream


def test_a_stream_has_the_bytes_of_the_log_and_then_ends(
    client: httpx.Client, server: RunningServer, runs: RecordedRuns
) -> None:
    assert read_stream(client, stream_of(runs.done)) == [*lines(server.storage, runs.done), END]


def _by_header(place: int) -> dict[str, Any]:
    return {"headers": {"Last-Event-ID": str(place)}}


def _by_parameter(place: int) -> dict[str, Any]:
    return {"params": {"after": place}}


def _by_both(place: int) -> dict[str, Any]:
    """Resume like a browser, which keeps its original URL."""
    return _by_header(place) | _by_parameter(0)


@pytest.mark.parametrize("goes_on", [_by_header, _by_parameter, _by_both])
def test_a_stream_that_breaks_at_any_event_resumes_without_gaps_or_repeats(
    client: httpx.Client, server: RunningServer, runs: RecordedRuns, goes_on: Callable[[int], dict[str, Any]]
) -> None:
    everything = lines(server.storage, runs.done)
    for position in range(len(everything) + 1):
        before = read_stream(client, stream_of(runs.done), position) if position else []
        after = read_stream(client, stream_of(runs.done), **goes_on(position))
        assert before + after == [*everything, END]


def test_a_stream_that_breaks_repeatedly_during_a_run_misses_nothing(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client, open_recorder(own_storage) as recorder:
        write(recorder, run_started())
        writer = threading.Thread(target=_write_slowly, args=(recorder, 60))
        writer.start()
        got: list[SseEvent] = []
        while END not in got:
            place = int(got[-1].id or 0) if got else 0
            got += read_stream(client, stream_of(recorder.run_id), 1 + place % 4, **_by_header(place))
        writer.join()
        assert got == [*lines(own_storage, recorder.run_id), END]


def _write_slowly(recorder: Any, count: int) -> None:
    for n in range(count):
        write(recorder, assistant(f"word {n} é"))
        time.sleep(0.002 * (n % 5))
    write(recorder, run_completed())


def test_new_events_are_sent_at_once(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client, open_recorder(own_storage) as recorder:
        write(recorder, run_started())
        with open_stream(client, stream_of(recorder.run_id)) as received:
            assert isinstance(next(received), SseEvent)
            for n in range(3):
                write(recorder, user(str(n)))
                started_at = time.monotonic()
                got = next(received)
                assert isinstance(got, SseEvent)
                assert got.id == str(n + 2)
                assert time.monotonic() - started_at < 2
            write(recorder, run_completed())
            assert list(received)[-1] == END


def test_a_stream_has_deltas_of_messages_as_they_are_generated(own_storage: Storage) -> None:
    bus, run_id = LocalBus(), new_run_id()
    reader = LocalLogReader(own_storage, bus=bus)
    typed = [
        Delta(after=1, path="test", message_id="m1", block=0, kind="text", offset=offset, text=text)
        for offset, text in ((0, "Hel"), (3, "lo\r\n é"))
    ]
    with open_server(own_storage, logs=reader) as server, server.client() as client:
        got = anyio.run(_typed, LocalLogs(own_storage, bus=bus), client, run_id, typed)
    first, message, outcome = lines(own_storage, run_id)
    assert got == [first, *(SseEvent("delta", _encoded(item)) for item in typed), message, outcome, END]


def _encoded(delta: Delta) -> str:
    return msgspec.json.encode(delta).decode()


async def _typed(logs: LocalLogs, client: httpx.Client, run_id: str, typed: list[Delta]) -> list[SseEvent]:
    """Stream deltas of a message while a client reads in another thread."""
    async with logs.open(run_id) as log:
        await log.append(run_started())
        with open_stream(client, stream_of(run_id)) as received:
            events_only = (item for item in received if isinstance(item, SseEvent))
            got = [next(events_only)]
            for delta in typed:
                log.publish_delta(delta)
                got.append(next(events_only))
            await log.append(msgspec.structs.replace(assistant("Hello"), message_id="m1"), path="test")
            await log.append(run_completed())
            return got + list(events_only)


def test_a_stream_of_a_run_without_a_writer_ends(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client:
        with open_recorder(own_storage) as recorder:
            write(recorder, run_started(), user("Hi"))
        assert read_stream(client, stream_of(recorder.run_id)) == [*lines(own_storage, recorder.run_id), END]


def test_a_reader_past_the_end_gets_a_reset(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client, open_recorder(own_storage) as recorder:
        write(recorder, run_started(), user("Hi"))
        with open_stream(client, stream_of(recorder.run_id), **_by_header(10)) as received:
            assert next(received) == SseEvent("reset", '{"last":2}')
            write(recorder, run_completed())
            assert list(received) == [lines(own_storage, recorder.run_id)[2], END]


def test_a_silent_stream_sends_heartbeats(own_storage: Storage) -> None:
    with (
        open_server(own_storage, heartbeat_seconds=0.05) as server,
        server.client() as client,
        open_recorder(own_storage) as recorder,
    ):
        write(recorder, run_started())
        with open_stream(client, stream_of(recorder.run_id)) as received:
            assert isinstance(next(received), SseEvent)
            assert list(islice(received, 3)) == [": heartbeat"] * 3
            write(recorder, user("Hi"))
            assert "Hi" in next(item.data for item in received if isinstance(item, SseEvent))
        with open_stream(client, "/api/stream") as received:
            # Scripts of a page do not see comments.
            assert list(islice((item for item in received if item == SseEvent("heartbeat", "{}")), 2))


def test_heartbeats_are_fifteen_seconds_apart(server: RunningServer) -> None:
    assert server.app.state.services.heartbeat_seconds == 15


def test_pending_events_are_sent_in_one_chunk(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), *[user(str(n)) for n in range(500)], run_completed())
    with open_server(own_storage) as server:
        pieces = anyio.run(_pieces, server, stream_of(run_id))
    assert [piece.count(b"data: ") for piece in pieces] == [502, 1, 0]


async def _pieces(server: RunningServer, address: str) -> list[bytes]:
    """Return the chunks that the app sends for a request."""
    pieces: list[bytes] = []
    headers = [(b"host", server.host.encode()), (b"authorization", b"Bearer " + server.tokens.admin_token().encode())]
    host, _, port = server.host.partition(":")
    scope = {"type": "http", "method": "GET", "path": address, "query_string": b"", "headers": headers}
    scope |= {"server": (host, int(port)), "scheme": "http", "http_version": "1.1", "root_path": ""}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            pieces.append(message["body"])

    await server.app(scope, anyio.sleep_forever, send)  # type: ignore[arg-type]
    return pieces


def test_a_line_with_a_carriage_return_is_still_one_event(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), run_completed())
    path = own_storage.log_path(run_id)
    path.write_bytes(path.read_bytes().replace(b'"path":', b'\r"path":').replace(b"\n", b"\r\n"))
    with open_server(own_storage) as server, server.client() as client:
        got = read_stream(client, stream_of(run_id))
        assert [item.id for item in got] == ["1", "2", None]
        assert [item.json["seq"] for item in got[:2]] == [1, 2]


def test_a_client_that_does_not_read_does_not_delay_others(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), *[user("x" * 100_000) for _ in range(200)], run_completed())
    # The client that does not read is not disconnected meanwhile.
    with (
        open_server(own_storage, limits=ConnectionLimits(stalled_seconds=10 * TIMEOUT_SECONDS)) as server,
        server.client() as slow,
        server.client() as client,
        slow.stream("GET", stream_of(run_id)),
    ):
        assert client.get("/api/health").status_code == 200
        assert len(read_stream(client, stream_of(run_id))) == 203


def test_streams_end_promptly_when_the_server_stops(own_storage: Storage) -> None:
    with open_recorder(own_storage) as recorder, ThreadPoolExecutor() as pool:
        write(recorder, run_started())
        with open_server(own_storage) as server:
            addresses = (stream_of(recorder.run_id), "/api/stream")
            all_started = threading.Barrier(len(addresses) + 1)
            reading = [pool.submit(_read_to_end, server, address, all_started) for address in addresses]
            all_started.wait(TIMEOUT_SECONDS)
            started_at = time.monotonic()
        # The run has not ended, so no stream has an `end`: the clients reconnect.
        assert [[item.event for item in got.result(TIMEOUT_SECONDS)] for got in reading] == [["message"], ["ready"]]
        # After that time the server would cut them off.
        assert time.monotonic() - started_at < SERVER_STOP_SECONDS


def _read_to_end(server: RunningServer, address: str, all_started: threading.Barrier) -> list[SseEvent]:
    with server.client() as client, open_stream(client, address) as received:
        first = next(received)
        all_started.wait(TIMEOUT_SECONDS)
        return [item for item in (first, *received) if isinstance(item, SseEvent)]


# The page's stream


def test_the_page_gets_every_changed_row(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client, open_stream(client, "/api/stream") as received:
        assert next(received) == SseEvent("ready", "{}")
        with open_recorder(own_storage) as recorder:
            write(recorder, run_started(task="new"))
            seen = _next_row(received)
            assert (seen["id"], seen["task"], seen["status"]) == (recorder.run_id, "new", "running")
            write(recorder, run_completed())
            while seen["status"] != "done":
                seen = _next_row(received)
        assert seen == client.get("/api/agents/workers").json()["workers"][0]


def test_the_page_gets_deleted_runs(own_storage: Storage, tmp_path: Path) -> None:
    single, parent = (
        record(own_storage, run_started(), run_completed()),
        record(own_storage, run_started(), run_completed()),
    )
    child = record(own_storage, run_started(), run_completed(), parent=parent)
    with engine_server(own_storage, write_workers(tmp_path / "workers")) as server, server.client() as client:
        _until_listed(client, 3)
        with open_stream(client, "/api/stream") as received:
            assert next(received) == SseEvent("ready", "{}")
            assert set(client.delete(f"/api/runs/{parent}").json()["deleted"]) == {parent, child}
            assert read_deleted(received, 2) == {parent, child}
            # Deleted by another process that does not know this server.
            anyio.run(_prune, own_storage)
            assert read_deleted(received, 1) == {single}


def _until_listed(client: httpx.Client, count: int) -> None:
    while client.get("/api/agents/workers").json()["total"] < count:
        time.sleep(0.02)


def read_deleted(received: Any, count: int) -> set[str]:
    """Read until so many runs are reported as deleted, and return their ids."""
    deleted: set[str] = set()
    while len(deleted) < count:
        deleted |= set(
            next(item.json["run_ids"] for item in received if isinstance(item, SseEvent) and item.event == "gone")
        )
    return deleted


async def _prune(storage: Storage) -> None:
    async with local_backend(storage) as backend:
        assert await prune(backend, before="2999-01-01T00:00:00.000Z", by="test") == 1


def test_the_page_gets_a_pin(own_storage: Storage) -> None:
    run_id = record(own_storage, run_started(), run_completed())
    with open_server(own_storage) as server, server.client() as client, open_stream(client, "/api/stream") as received:
        assert next(received) == SseEvent("ready", "{}")
        for pinned in (True, False):
            client.post(f"/api/runs/{run_id}/pin", json={"pinned": pinned})
            seen = _next_row(received)
            assert (seen["id"], seen["pinned"]) == (run_id, pinned)


def _next_row(received: Any) -> Any:
    return next(item.json for item in received if isinstance(item, SseEvent) and item.event == "run")


def _log_events(received: Any, ends: int) -> list[SseEvent]:
    """Read the events of logs until so many of them have ended."""
    got: list[SseEvent] = []
    for item in received:
        if isinstance(item, SseEvent) and item.event in ("log", "reset", "end"):
            got.append(item)
            ends -= item.event == "end"
        if not ends:
            break
    return got


def log_seqs(got: list[SseEvent], run_id: str) -> list[Any]:
    return [item.json["event"]["seq"] for item in got if item.event == "log" and item.json["run_id"] == run_id]


def test_the_page_can_follow_runs_over_its_one_connection(
    client: httpx.Client, server: RunningServer, runs: RecordedRuns
) -> None:
    with open_stream(client, "/api/stream", params={"runs": f"{runs.done}:5,{runs.failed}"}) as received:
        got = _log_events(received, ends=2)
    assert log_seqs(got, runs.done) == [6, 7, 8]
    assert log_seqs(got, runs.failed) == [1, 2, 3]
    raw = lines(server.storage, runs.done)[5].data
    assert any(item.data == f'{{"run_id":"{runs.done}","event":{raw}}}' for item in got)
    assert {item.json["run_id"] for item in got if item.event == "end"} == {runs.done, runs.failed}


def test_the_page_resumes_every_run_it_follows(client: httpx.Client, runs: RecordedRuns) -> None:
    query = {"params": {"runs": f"{runs.done},{runs.failed},{runs.cancelled}"}}
    with open_stream(client, "/api/stream", **query) as received:
        everything = _log_events(received, ends=3)
    for position in range(1, len(everything)):
        with open_stream(client, "/api/stream", **query) as received:
            before = _log_events(received, ends=3)[:position]
        places = [item.id for item in before if item.id]
        with open_stream(client, "/api/stream", **query, headers={"Last-Event-ID": places[-1]}) as received:
            after = _log_events(received, ends=3)
        for run_id in (runs.done, runs.failed, runs.cancelled):
            assert log_seqs(before + after, run_id) == log_seqs(everything, run_id)


def test_an_unknown_run_does_not_end_the_stream_of_the_page(client: httpx.Client, runs: RecordedRuns) -> None:
    unknown = new_run_id()
    with open_stream(client, "/api/stream", params={"runs": f"{unknown},{runs.failed}:2"}) as received:
        got = _log_events(received, ends=2)
    assert log_seqs(got, runs.failed) == [3]
    (end,) = (item.json for item in got if item.event == "end" and item.json["run_id"] == unknown)
    assert end["error"]["code"] == "run_not_found"


def test_the_page_gets_a_reset_for_a_truncated_log(client: httpx.Client, runs: RecordedRuns) -> None:
    with open_stream(client, "/api/stream", params={"runs": f"{runs.running}:99"}) as received:
        got = next(item for item in received if isinstance(item, SseEvent) and item.event == "reset")
    assert got == SseEvent("reset", f'{{"run_id":"{runs.running}","last":3}}', f"{runs.running}:3")


def test_the_page_gets_long_texts_shortened(own_storage: Storage) -> None:
    words = "x" * 2_000_000
    run_id = record(own_storage, run_started(), tool_result(words), assistant("short"), run_completed())
    with (
        open_server(own_storage) as server,
        server.client() as client,
        open_stream(client, "/api/stream", params={"runs": run_id}) as received,
    ):
        got = _log_events(received, ends=1)
    first, long, short, *_ = (item.json["event"] for item in got[:4])
    assert long["payload"]["output"] == words[:TRUNCATED_TEXT_CHARS]
    assert long["cut"] == len(lines(own_storage, run_id)[1].data)
    assert (first, short) == (
        json.loads(lines(own_storage, run_id)[0].data),
        json.loads(lines(own_storage, run_id)[2].data),
    )
    assert [item.id for item in got[:4]] == [f"{run_id}:{seq}" for seq in range(1, 5)]


def tool_result(output: str) -> ToolResult:
    return ToolResult(name="Bash", call_id="c", input=None, output=output, fidelity="router")


def test_the_page_gets_text_as_it_is_generated(own_storage: Storage) -> None:
    bus, run_id = LocalBus(), new_run_id()
    reader = LocalLogReader(own_storage, bus=bus)
    delta = Delta(after=1, path="test", message_id="m1", block=0, kind="text", offset=0, text="Hel")
    with open_server(own_storage, logs=reader) as server, server.client() as client:
        got = anyio.run(_typed_to_a_page, LocalLogs(own_storage, bus=bus), client, run_id, delta)
    assert (got.event, got.id) == ("delta", None)
    assert got.json == {"run_id": run_id} | json.loads(_encoded(delta))


async def _typed_to_a_page(logs: LocalLogs, client: httpx.Client, run_id: str, delta: Delta) -> SseEvent:
    async with logs.open(run_id) as log:
        await log.append(run_started())
        with open_stream(client, "/api/stream", params={"runs": run_id}) as received:
            events_only = (item for item in received if isinstance(item, SseEvent) and item.event in ("log", "delta"))
            assert next(events_only).event == "log"
            log.publish_delta(delta)
            return next(events_only)


def test_the_page_waits_for_the_host_that_resumes_a_run(own_storage: Storage, tmp_path: Path) -> None:
    with engine_server(own_storage, write_workers(tmp_path / "workers")) as server, server.client() as client:
        with open_recorder(own_storage) as recorder:
            write(recorder, run_started(definition={"slug": "tester"}), user("Hi"))
        with open_stream(client, "/api/stream", params={"runs": recorder.run_id}) as received:
            assert log_seqs(list(islice(_logs(received), 2)), recorder.run_id) == [1, 2]
            time.sleep(0.5)
            with open_recorder(own_storage, recorder.run_id) as again:
                write(again, run_completed())
            assert [item.event for item in _log_events(received, ends=1)] == ["log", "end"]


def _logs(received: Any) -> Iterator[SseEvent]:
    return (item for item in received if isinstance(item, SseEvent) and item.event in ("log", "end"))


def test_the_page_waits_for_a_queued_run(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client:
        run_id = queue_run(server)
        with open_stream(client, "/api/stream", params={"runs": run_id}) as received:
            assert next(received) == SseEvent("ready", "{}")
            time.sleep(QUEUED_CHECK_SECONDS + 0.3)
            with open_recorder(own_storage, run_id) as recorder:
                write(recorder, run_started(), run_completed())
            got = _log_events(received, ends=1)
    assert log_seqs(got, run_id) == [1, 2]
    assert got[-1].json == {"run_id": run_id, "error": None}


def test_the_page_gets_the_end_of_a_queued_run_that_is_deleted(own_storage: Storage) -> None:
    with open_server(own_storage) as server, server.client() as client:
        run_id = queue_run(server)
        with open_stream(client, "/api/stream", params={"runs": run_id}) as received:
            assert next(received) == SseEvent("ready", "{}")
            assert server.portal is not None
            server.portal.call(server.app.state.services.store.delete, run_id)
            (end,) = _log_events(received, ends=1)
    assert end.json["error"]["code"] == "run_not_found"


@pytest.mark.parametrize("count", [1, 16])
def test_the_page_can_follow_up_to_sixteen_runs(own_storage: Storage, count: int) -> None:
    ids = [record(own_storage, run_started(), run_completed()) for _ in range(count)]
    query = {"runs": ",".join(f"{item}:0" for item in ids)}
    with (
        open_server(own_storage) as server,
        server.client() as client,
        open_stream(client, "/api/stream", params=query) as received,
    ):
        got = _log_events(received, ends=count)
    assert all(log_seqs(got, item) == [1, 2] for item in ids)
