"""Search: runs that have all terms of a query, put into a temporary table; and where the terms stand.

A term is found anywhere in a task, by trigrams, or as words in any piece of a run's text, by a word index. Pieces are
numbered so that those of a run follow one another: the run's number, then `PIECE_BITS` for the piece.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Final

from shopfloor.limits import SEARCH_CANDIDATES, SEARCH_RUN_CHARS, SEARCH_SCAN_RUNS
from shopfloor.ports import RunItem
from shopfloor.views import Term, normalize_text, parse_query, run_id_prefix, snippet

PIECE_BITS: Final = 20
_TRIGRAM: Final = 3
_LAST_PIECE: Final = (1 << PIECE_BITS) - 1
_OF_RUN: Final = f"rowid BETWEEN {{num}} << {PIECE_BITS} AND ({{num}} << {PIECE_BITS}) + {_LAST_PIECE}"

UPSERT_TASK: Final = (
    "INSERT INTO search_tasks (num, text) VALUES ((SELECT num FROM worker_runs WHERE id = ?), ?)"
    " ON CONFLICT (num) DO UPDATE SET text = excluded.text"
)
UPSERT_PIECE: Final = (
    "INSERT OR REPLACE INTO search_pieces (rowid, body)"
    f" VALUES (((SELECT num FROM worker_runs WHERE id = ?) << {PIECE_BITS}) + ?, ?)"
)

TEMPORARY_TABLES: Final = tuple(
    f"CREATE TEMP TABLE {table} (num INTEGER PRIMARY KEY)" for table in ("found", "found_by_term")
)
"""Made for each connection, as its first statements. They are empty but within a search's transaction."""
_BY_WORDS: Final = (
    f"INSERT OR IGNORE INTO temp.{{table}} SELECT rowid >> {PIECE_BITS} FROM search_pieces WHERE search_pieces MATCH ?"
)
_BY_TRIGRAMS: Final = (
    "INSERT OR IGNORE INTO temp.{table} SELECT search_tasks.num FROM search_trigrams CROSS JOIN search_tasks"
    " ON search_tasks.num = search_trigrams.rowid WHERE search_trigrams MATCH ? AND instr(search_tasks.text, ?) > 0"
)
_BY_SCAN: Final = "INSERT OR IGNORE INTO temp.{table} SELECT num FROM search_tasks WHERE instr(text, ?) > 0"
_MANY: Final = f"SELECT 1 FROM search_trigrams WHERE search_trigrams MATCH ? LIMIT 1 OFFSET {SEARCH_SCAN_RUNS}"
_HAS_NEITHER: Final = (
    "DELETE FROM temp.found WHERE"
    " NOT EXISTS (SELECT 1 FROM search_tasks WHERE search_tasks.num = found.num AND instr(text, ?) > 0)"
    f" AND NOT EXISTS (SELECT 1 FROM search_pieces WHERE search_pieces MATCH ? AND {_OF_RUN.format(num='found.num')})"
)
# `g` comes after all that an id can go on with.
_BY_ID: Final = "INSERT OR IGNORE INTO temp.found SELECT num FROM worker_runs WHERE id >= ? AND id < ? || 'g'"
_PIECE: Final = (
    f"SELECT body FROM search_pieces WHERE search_pieces MATCH ? AND {_OF_RUN.format(num='?')} ORDER BY rowid LIMIT 1"
)
_NOTHING: Final = '""'


def find_runs(database: sqlite3.Connection, query: str) -> None:
    """Put the numbers of the runs that a query finds into the table `found`.

    To be called in a transaction that is rolled back: that empties the table again.
    """
    # The longest first: it is in the fewest runs.
    terms = sorted(parse_query(query), key=lambda term: -len(term.literal))
    count = _find_term(database, "found", terms[0]) if terms else 0
    for term in terms[1:]:
        count = _keep_those_with(database, term, count)
    if (run_id := run_id_prefix(query)) is not None:
        database.execute(_BY_ID, (run_id, run_id))


def _find_term(database: sqlite3.Connection, table: str, term: Term) -> int:
    by_words = database.execute(_BY_WORDS.format(table=table), (_words_query(term),)).rowcount
    trigrams = _trigrams_query(term)
    # A text of fewer than three characters is in no trigram. A common one is found sooner by reading all.
    if trigrams is None or database.execute(_MANY, (trigrams,)).fetchone() is not None:
        by_task = database.execute(_BY_SCAN.format(table=table), (term.literal,))
    else:
        by_task = database.execute(_BY_TRIGRAMS.format(table=table), (trigrams, term.literal))
    return by_words + by_task.rowcount


def _keep_those_with(database: sqlite3.Connection, term: Term, count: int) -> int:
    if count <= SEARCH_CANDIDATES:
        return count - database.execute(_HAS_NEITHER, (term.literal, _words_query(term))).rowcount
    database.execute("DELETE FROM temp.found_by_term")
    _find_term(database, "found_by_term", term)
    gone = database.execute("DELETE FROM temp.found WHERE num NOT IN (SELECT num FROM temp.found_by_term)")
    return count - gone.rowcount


def _words_query(term: Term) -> str:
    """The words one after another, quoted: words have no quotes. Without a word it finds nothing."""
    return f'"{" ".join(term.words)}"' + (" *" if term.is_prefix else "") if term.words else _NOTHING


def _trigrams_query(term: Term) -> str | None:
    text = term.literal
    trigrams = dict.fromkeys(text[start : start + _TRIGRAM] for start in range(len(text) - _TRIGRAM + 1))
    return " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams) or None


def snippets(database: sqlite3.Connection, query: str, items: Iterable[RunItem]) -> Iterator[str | None]:
    """For each run, where the terms stand: in the piece that has all of them, or else any."""
    terms = parse_query(query)
    words = [_words_query(term) for term in terms if term.words]
    queries = dict.fromkeys((" AND ".join(words), " OR ".join(words))) if words else ()
    for item in items:
        bounds = (item.number, item.number)
        found = (database.execute(_PIECE, (wanted, *bounds)).fetchone() for wanted in queries)
        text = next((row[0] for row in found if row is not None), None)
        yield snippet(terms, item.row.task, () if text is None else (text,))


def task_text(task: str) -> str:
    return normalize_text(task[:SEARCH_RUN_CHARS])
