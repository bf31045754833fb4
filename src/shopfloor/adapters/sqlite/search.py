"""Search: collects the runs that match all terms of a query in a temporary table, and returns snippets.

A term matches anywhere in a task, with a trigram index, or as words in any chunk of a run's text, with a word index.
The row id of a chunk is the run's number, shifted by `CHUNK_BITS`, plus the chunk's number, so that the chunks of a run
are consecutive.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from shopfloor.adapters.limits import SEARCH_CANDIDATES, SEARCH_SCAN_RUNS
from shopfloor.limits import SEARCH_RUN_CHARS
from shopfloor.ports import RunItem
from shopfloor.views import Term, normalize_text, parse_query, run_id_prefix, snippet

CHUNK_BITS: Final = 20
_TRIGRAM: Final = 3
_LAST_CHUNK: Final = (1 << CHUNK_BITS) - 1
_CHUNKS_OF_RUN: Final = f"rowid BETWEEN {{num}} << {CHUNK_BITS} AND ({{num}} << {CHUNK_BITS}) + {_LAST_CHUNK}"

UPSERT_TASK: Final = (
    "INSERT INTO search_tasks (num, text) VALUES ((SELECT num FROM worker_runs WHERE id = ?), ?)"
    " ON CONFLICT (num) DO UPDATE SET text = excluded.text"
)
UPSERT_CHUNK: Final = (
    "INSERT OR REPLACE INTO search_pieces (rowid, body)"
    f" VALUES (((SELECT num FROM worker_runs WHERE id = ?) << {CHUNK_BITS}) + ?, ?)"
)

TEMPORARY_TABLES: Final = tuple(
    f"CREATE TEMP TABLE {table} (num INTEGER PRIMARY KEY)" for table in ("found", "found_by_term")
)
"""Created on each new connection. The tables are empty outside the transaction of a search."""
_BY_WORDS: Final = (
    f"INSERT OR IGNORE INTO temp.{{table}} SELECT rowid >> {CHUNK_BITS} FROM search_pieces WHERE search_pieces MATCH ?"
)
_BY_TRIGRAMS: Final = (
    "INSERT OR IGNORE INTO temp.{table} SELECT search_tasks.num FROM search_trigrams CROSS JOIN search_tasks"
    " ON search_tasks.num = search_trigrams.rowid WHERE search_trigrams MATCH ? AND instr(search_tasks.text, ?) > 0"
)
_BY_SCAN: Final = "INSERT OR IGNORE INTO temp.{table} SELECT num FROM search_tasks WHERE instr(text, ?) > 0"
_IS_COMMON: Final = f"SELECT 1 FROM search_trigrams WHERE search_trigrams MATCH ? LIMIT 1 OFFSET {SEARCH_SCAN_RUNS}"
_DELETE_WITHOUT_TERM: Final = (
    "DELETE FROM temp.found WHERE"
    " NOT EXISTS (SELECT 1 FROM search_tasks WHERE search_tasks.num = found.num AND instr(text, ?) > 0)"
    " AND NOT EXISTS (SELECT 1 FROM search_pieces"
    f" WHERE search_pieces MATCH ? AND {_CHUNKS_OF_RUN.format(num='found.num')})"
)
# `g` sorts after every character of an id.
_BY_ID: Final = "INSERT OR IGNORE INTO temp.found SELECT num FROM worker_runs WHERE id >= ? AND id < ? || 'g'"
_FIRST_CHUNK: Final = (
    "SELECT body FROM search_pieces"
    f" WHERE search_pieces MATCH ? AND {_CHUNKS_OF_RUN.format(num='?')} ORDER BY rowid LIMIT 1"
)
_MATCH_NOTHING: Final = '""'


def find_runs(database: sqlite3.Connection, query: str) -> None:
    """Insert the numbers of the runs that match a query into the table `found`.

    Call it in a transaction that is rolled back, which empties the table again.
    """
    # The longest term first: it probably matches the fewest runs.
    terms = sorted(parse_query(query), key=lambda term: -len(term.literal))
    count = _find_term(database, "found", terms[0]) if terms else 0
    for term in terms[1:]:
        count = _filter_by_term(database, term, count)
    if (run_id := run_id_prefix(query)) is not None:
        database.execute(_BY_ID, (run_id, run_id))


def _find_term(database: sqlite3.Connection, table: str, term: Term) -> int:
    by_words = database.execute(_BY_WORDS.format(table=table), (_words_query(term),)).rowcount
    trigrams = _trigrams_query(term)
    # A text of fewer than three characters has no trigram. A common one is found faster by a scan of all tasks.
    if trigrams is None or database.execute(_IS_COMMON, (trigrams,)).fetchone() is not None:
        by_task = database.execute(_BY_SCAN.format(table=table), (term.literal,))
    else:
        by_task = database.execute(_BY_TRIGRAMS.format(table=table), (trigrams, term.literal))
    return by_words + by_task.rowcount


def _filter_by_term(database: sqlite3.Connection, term: Term, count: int) -> int:
    if count <= SEARCH_CANDIDATES:
        return count - database.execute(_DELETE_WITHOUT_TERM, (term.literal, _words_query(term))).rowcount
    database.execute("DELETE FROM temp.found_by_term")
    _find_term(database, "found_by_term", term)
    deleted = database.execute("DELETE FROM temp.found WHERE num NOT IN (SELECT num FROM temp.found_by_term)")
    return count - deleted.rowcount


def _words_query(term: Term) -> str:
    """Return the words as a quoted phrase (words contain no quotes). A term without words matches nothing."""
    return f'"{" ".join(term.words)}"' + (" *" if term.is_prefix else "") if term.words else _MATCH_NOTHING


def _trigrams_query(term: Term) -> str | None:
    text = term.literal
    trigrams = dict.fromkeys(text[start : start + _TRIGRAM] for start in range(len(text) - _TRIGRAM + 1))
    return " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams) or None


def snippets(database: sqlite3.Connection, query: str, items: Iterable[RunItem]) -> Iterator[str | None]:
    """Return a snippet for each run: from the first chunk with all terms, or else with any of them."""
    terms = parse_query(query)
    words = [_words_query(term) for term in terms if term.words]
    queries = dict.fromkeys((" AND ".join(words), " OR ".join(words))) if words else ()
    for item in items:
        bounds = (item.number, item.number)
        found = (database.execute(_FIRST_CHUNK, (words_query, *bounds)).fetchone() for words_query in queries)
        text = next((row[0] for row in found if row is not None), None)
        yield snippet(terms, item.row.task, () if text is None else (text,))


def task_text(task: str) -> str:
    """Return the text of a task as it is indexed."""
    return normalize_text(task[:SEARCH_RUN_CHARS])
