"""Lists over 1,000,000 runs: a page over HTTP, search, totals and deep pages, against plain SQL."""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
from collections.abc import Callable, Iterator
from itertools import cycle
from time import perf_counter
from typing import NamedTuple

import anyio
import anyio.from_thread
import httpx

from benchmarks.harness import Comparison, Result, interleave, log_progress, scratch, seconds_of
from benchmarks.server_process import running_server
from shopfloor.adapters.sqlite import SqliteStore
from shopfloor.client import Address
from shopfloor.log import format_timestamp, new_run_id
from shopfloor.ports import RunFilter
from shopfloor.record import Storage

PAGE = 50
LIMIT_SECONDS = 0.005
OWNERS = [f"owner-{number}" for number in range(50)]
WORKERS = [f"worker-{number}" for number in range(8)]
PROVIDERS = {"opus": "claude-code", "sonnet": "claude-code", "gpt": "codex", "local": "opencode"}
"""Providers of the models."""
MODELS = list(PROVIDERS)
_SPENDING = (
    '{"settled":{"usage":{"input":41234,"output":2310,"cache_read":39000,"cache_write":1200,"reasoning":0},'
    '"cost":{"usd":%s,"source":"agent"}}}'
)
_CHANNELS = [f"channel-{number}" for number in range(20)]
_STATUSES = ("completed",) * 7 + ("failed",) * 2 + ("cancelled",)
_TYPES = ("builtin", "plugin", "agent")
_RARE_WORDS = [f"quetzal{letter}" for letter in "abcdefgh"]
"""Words that occur in the text of ten runs each."""
_RARE_RUNS = 10
_TASK_WORDS = [f"xyzzy{letter}w" for letter in "abcdefgh"]
"""Words that occur in ten tasks each."""
_TWO_LETTERS = "zq"
"""Letters that occur in ten tasks and in no word of a text."""
_PHRASE_END = "plume"
"""The word after each rare word, to search for phrases."""
_BODY_WORDS = 20
_ARCHIVE_BYTES = 8_000
_ARCHIVE_EVERY = 100
_SEED = 7
FIRST_MS = 1_767_225_600_000
STEP_MS = 20_000
_BATCH = 20_000

_COLUMNS = (
    "num, worker_runs.id AS id, channel_id, task, status, started_at, completed_at, worker_type, agent_id, "
    "parent_run_id, root_run_id, worker_runs.name AS name, kind, error_code, error_message, error_hint, provider, "
    "model, host, attempt, queued_at, duration_ms, tool_calls, messages, spending, cost_usd, "
    "waits, wake_at, outside, children, last_seq, event_count, has_transcript, "
    "channels.name AS channel_name, pins.worker_id IS NOT NULL AS pinned"
)
_LIST = (
    f"SELECT {_COLUMNS} FROM worker_runs LEFT JOIN channels ON channels.id = channel_id "
    "LEFT JOIN pins ON pins.worker_id = worker_runs.id"
)
_OWNED = f"{_LIST} WHERE agent_id = ? AND status = ? ORDER BY started_at DESC, num DESC LIMIT {PAGE}"
_OWNED_TOTAL = "SELECT sum(n) FROM run_counts WHERE agent_id = ? AND status = ?"
_FAR = f"{_LIST} ORDER BY started_at DESC, num DESC LIMIT {PAGE} OFFSET ?"
# The tables with the searchable texts, read directly: the fastest way without an index.
_LIKE = f"SELECT id, c0 FROM search_pieces_content WHERE c0 LIKE ? ORDER BY id DESC LIMIT {PAGE + 1}"
_LIKE_TASK = f"SELECT num, text FROM search_tasks WHERE text LIKE ? ORDER BY num DESC LIMIT {PAGE + 1}"
_COUNT_LIKE_TASK = "SELECT count(*) FROM search_tasks WHERE text LIKE ?"


def _vocabulary(rng: random.Random) -> list[str]:
    letters = "abcdefghiklmnoprstuvw"
    return ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(2_000)]


class _Sample:
    """Rows of ended runs, the same every time except for their ids."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._random = random.Random(_SEED)
        self._words = _vocabulary(self._random)
        places = self._random.sample(range(1, runs + 1), _RARE_RUNS * len(_RARE_WORDS))
        self._rare = dict(zip(places, cycle(_RARE_WORDS), strict=False))
        self._task_words = dict(zip(places, cycle(_TASK_WORDS), strict=False))
        self._two_letter_runs = set(places[:_RARE_RUNS])

    def numbers(self) -> Iterator[range]:
        for first in range(1, self._runs + 1, _BATCH):
            yield range(first, min(first + _BATCH, self._runs + 1))

    def run(self, num: int) -> tuple[object, ...]:
        choice = self._random.choice
        run_id, started_at = new_run_id(), FIRST_MS + num * STEP_MS
        status = choice(_STATUSES)
        failed = status == "failed"
        owner, model = self._random.randrange(len(OWNERS)), choice(MODELS)
        cost_usd, duration_ms = round(self._random.expovariate(5), 4), int(self._random.expovariate(1 / 61_000))
        return (
            num,
            run_id,
            choice(_CHANNELS),
            self.task(num),
            status,
            format_timestamp(started_at),
            format_timestamp(started_at + duration_ms),
            choice(_TYPES),
            OWNERS[owner],
            run_id,
            WORKERS[owner % len(WORKERS)],
            "agent",
            "tool_failed" if failed else None,
            "the tests did not pass" if failed else None,
            "host-1",
            1,
            duration_ms,
            12,
            9,
            _SPENDING % cost_usd,
            cost_usd,
            model,
            PROVIDERS[model],
            120,
            40,
            num % _ARCHIVE_EVERY == 0,
        )

    def task(self, num: int) -> str:
        place = f" in {self._task_words[num]}" if num in self._task_words else ""
        short = f" {_TWO_LETTERS}" if num in self._two_letter_runs else ""
        return f"Look at what the nightly build says about module {num}{place}{short} and repair it"

    def body(self, num: int) -> str:
        words = self._random.choices(self._words, k=_BODY_WORDS)
        if num in self._rare:
            words[_BODY_WORDS // 2 : _BODY_WORDS // 2 + 2] = self._rare[num], _PHRASE_END
        return " ".join(words)

    def archive(self) -> bytes:
        return self._random.randbytes(_ARCHIVE_BYTES)


_INSERT = (
    "INSERT INTO worker_runs (num, id, channel_id, task, status, started_at, completed_at, worker_type, agent_id, "
    "root_run_id, name, kind, error_code, error_message, host, attempt, duration_ms, tool_calls, messages, spending, "
    f"cost_usd, model, provider, last_seq, event_count, has_transcript) VALUES ({', '.join('?' * 26)})"
)
_KEY = "coalesce(agent_id, ''), status, worker_type, coalesce(channel_id, ''), name, parent_run_id IS NULL"


def fill(storage: Storage, runs: int) -> None:
    """Create the database with the store's schema. Indexes and triggers are dropped during the inserts, for speed."""

    async def make() -> None:
        await (await SqliteStore.open(storage.database)).close()

    anyio.run(make)
    sample = _Sample(runs)
    connection = sqlite3.connect(storage.database, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    later = connection.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE type IN ('index', 'trigger') AND sql IS NOT NULL"
    ).fetchall()
    connection.execute("BEGIN")
    for kind, name, _ in later:
        connection.execute(f"DROP {kind} {name}")
    connection.executemany("INSERT INTO channels VALUES (?, ?)", [(one, one.title()) for one in _CHANNELS])
    for numbers in sample.numbers():
        connection.executemany(_INSERT, map(sample.run, numbers))
        connection.executemany(
            "INSERT INTO search_pieces(rowid, body) VALUES (? << 20, ?)", ((num, sample.body(num)) for num in numbers)
        )
    connection.execute("INSERT INTO search_tasks SELECT num, lower(task) FROM worker_runs")
    connection.execute("INSERT INTO search_trigrams(search_trigrams) VALUES ('rebuild')")
    archived = connection.execute("SELECT id FROM worker_runs WHERE has_transcript").fetchall()
    packed = ((run_id, sample.archive()) for (run_id,) in archived)
    connection.executemany("INSERT INTO worker_transcripts VALUES (?, ?)", packed)
    connection.execute(f"INSERT INTO run_counts SELECT {_KEY}, count(*) FROM worker_runs GROUP BY 1, 2, 3, 4, 5, 6")
    for _, _, statement in later:
        connection.execute(statement)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


class Client:
    """One keep-alive connection to the server."""

    def __init__(self, address: Address) -> None:
        self.http = httpx.Client(base_url=address.url, headers={"Authorization": f"Bearer {address.token}"})

    def get(self, path: str = "/api/agents/workers", **parameters: str | float) -> httpx.Response:
        answer = self.http.get(path, params=parameters)
        answer.raise_for_status()
        return answer


class _PlainSql:
    """The same queries with the SQLite driver alone."""

    def __init__(self, storage: Storage) -> None:
        self.connection = sqlite3.connect(storage.database)
        self.connection.row_factory = sqlite3.Row

    def rows(self, query: str, *values: object) -> list[dict[str, object]]:
        return [dict(row) for row in self.connection.execute(query, values)]

    def one(self, query: str, *values: object) -> object:
        return self.connection.execute(query, values).fetchone()[0]


def _compare_calls(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> tuple[Comparison, list[float]]:
    """Compare single calls; also return the seconds of each of our calls."""
    seconds: list[float] = []

    def timed() -> float:
        seconds.append(seconds_of(ours))
        return seconds[-1]

    found = interleave(timed, lambda: seconds_of(theirs), rounds)
    return found, seconds[1:]


def newest(client: Client, plain_sql: _PlainSql, runs: int, rounds: int) -> list[Result]:
    ours, theirs = cycle(OWNERS), cycle(OWNERS)

    def ask() -> None:
        answer = client.get(agent_id=next(ours), status="done", limit=PAGE)
        if answer.content.count(b'"worker_type"') != PAGE:
            raise RuntimeError(f"not a full page: {answer.text[:200]}")

    def select() -> None:
        owner = next(theirs)
        rows = plain_sql.rows(_OWNED, owner, "completed")
        json.dumps({"workers": rows, "total": plain_sql.one(_OWNED_TOTAL, owner, "completed")})

    for _ in range(3 * len(OWNERS)):
        ask()
        select()
    found, taken = _compare_calls(ask, select, rounds)
    p99 = statistics.quantiles(taken, n=100)[98]
    name = f"newest {PAGE} of an owner with a status, {runs:,} runs, HTTP"
    return [
        _compared(name, found, "plain SQL + json.dumps"),
        Result(
            measure=f"the same, p50 (p99 {_ms(p99)})",
            ours=_ms(found.ours),
            against=f"the limit: {_ms(LIMIT_SECONDS)}",
            ratio=LIMIT_SECONDS / found.ours,
            floor=1.0,
        ),
    ]


def total(client: Client, plain_sql: _PlainSql, runs: int, rounds: int) -> Result:
    def ask() -> None:
        if client.get(limit=1).json()["total"] != runs:
            raise RuntimeError("the total is wrong")

    found, _ = _compare_calls(ask, lambda: plain_sql.one("SELECT count(*) FROM worker_runs"), rounds)
    return _compared("the total of all, with the newest run, HTTP", found, "SELECT count(*)")


def deep(client: Client, plain_sql: _PlainSql, runs: int, rounds: int) -> Result:
    place = runs // 2
    cursor = client.get(offset=place - PAGE, limit=PAGE).json()["next"]
    expected = [row["id"] for row in plain_sql.rows(_FAR, place)]
    if [row["id"] for row in client.get(cursor=cursor, limit=PAGE).json()["workers"]] != expected:
        raise RuntimeError("the cursor leads to another page than the offset")
    found, _ = _compare_calls(
        lambda: client.get(cursor=cursor, limit=PAGE), lambda: plain_sql.rows(_FAR, place), rounds
    )
    return _compared(f"the page after {place:,} runs by cursor, HTTP", found, "plain SQL, OFFSET")


class _Query(NamedTuple):
    """Queries that find the same number of runs each, and the plain SQL that finds them, too."""

    measure: str
    queries: list[str]
    found: int
    sql: str
    peer: str
    floor: float | None


def _queries(runs: int) -> list[_Query]:
    among, rare = f"in {_RARE_RUNS} of {runs:,} runs", _RARE_RUNS
    phrases = [f'"{word} {_PHRASE_END}"' for word in _RARE_WORDS]
    parts = [place[1:-1] for place in _TASK_WORDS]
    return [
        _Query(f"search of a word {among}", _RARE_WORDS, rare, _LIKE, "LIKE '%word%'", 20.0),
        _Query(f"search of a phrase {among}", phrases, rare, _LIKE, "LIKE '%one two%'", 20.0),
        _Query(f"search of a part of a word {among}, in the task", parts, rare, _LIKE_TASK, "LIKE '%part%'", 20.0),
        _Query(f"search of two letters {among}, in the task", [_TWO_LETTERS], rare, _LIKE_TASK, "LIKE '%zq%'", 0.25),
        _Query("search of a word in every task", ["nightly"], runs, _COUNT_LIKE_TASK, "count, LIKE '%word%'", None),
    ]


def search(storage: Storage, plain_sql: _PlainSql, runs: int, rounds: int) -> list[Result]:
    with anyio.from_thread.start_blocking_portal() as portal:
        store = portal.call(SqliteStore.open, storage.database)

        def measured(query: _Query) -> Result:
            ours, theirs = cycle(query.queries), cycle(query.queries)

            def find() -> None:
                wanted = RunFilter(search=next(ours))
                page = portal.call(lambda: store.list_runs(wanted, limit=PAGE))
                if page.total != query.found or len(page.items) != min(PAGE, query.found):
                    raise RuntimeError(f"{wanted.search} found {page.total}, not {query.found}")

            def like() -> None:
                found = plain_sql.rows(query.sql, f"%{next(theirs).strip(chr(34))}%")
                if (found[0]["count(*)"] if query.found > PAGE else len(found)) != query.found:
                    raise RuntimeError(f"LIKE found another number of runs than {query.found}")

            found, _ = _compare_calls(find, like, rounds)
            return _compared(query.measure, found, query.peer, floor=query.floor)

        try:
            return [measured(query) for query in _queries(runs)]
        finally:
            portal.call(store.close)


def _compared(measure: str, found: Comparison, peer: str, *, floor: float | None = None) -> Result:
    return Result(
        measure=measure, ours=_ms(found.ours), against=f"{peer}: {_ms(found.theirs)}", ratio=found.ratio, floor=floor
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def run(*, quick: bool) -> list[Result]:
    runs, pages, scans = (20_000, 40, 5) if quick else (1_000_000, 600, 21)
    with scratch() as folder:
        storage = Storage(folder)
        started_at = perf_counter()
        fill(storage, runs)
        size = storage.database.stat().st_size / 1e6
        log_progress(f"{runs:,} runs stored, {size:,.0f} MB, in {perf_counter() - started_at:.0f} s")
        plain_sql = _PlainSql(storage)
        with running_server(storage) as address:
            client = Client(address)
            log_progress("pages over HTTP")
            results = newest(client, plain_sql, runs, pages)
            results += [total(client, plain_sql, runs, scans), deep(client, plain_sql, runs, scans)]
            client.http.close()
        log_progress("search")
        results += search(storage, plain_sql, runs, scans // 3)
        plain_sql.connection.close()
    return results
