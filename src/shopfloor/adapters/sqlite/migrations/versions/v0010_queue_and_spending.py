"""What is queued is the first event of its run. What a run has spent is one value."""

from alembic import op

revision = "0010"
down_revision = "0009"

_REWRITE = """
    UPDATE dispatches SET body = CAST(json_object('run_id', run_id, 'started', json_set(CAST(body AS TEXT),
        '$.name', json_extract(CAST(body AS TEXT), '$.worker'),
        '$.kind', iif(json_extract(CAST(body AS TEXT), '$.worker_type') = 'builtin', 'worker', 'agent'),
        '$.parent', iif(json_extract(CAST(body AS TEXT), '$.parent_run_id') IS NULL, json('null'), json_object(
            'run_id', json_extract(CAST(body AS TEXT), '$.parent_run_id'),
            'depth', json_extract(CAST(body AS TEXT), '$.depth'))),
        '$.attempt', 0, '$.host', '')) AS BLOB)
"""


def _spent(usage: str, cost: str) -> str:
    known = f"iif({cost} IS NULL, NULL, json_object('usd', {cost}, 'source', 'agent'))"
    return f"json_object('usage', json(coalesce({usage}, '{{}}')), 'cost', json({known}))"


_STATEMENTS = (
    _REWRITE,
    "ALTER TABLE worker_runs ADD COLUMN spending TEXT",
    f"""
    UPDATE worker_runs SET spending = json_object(
        'settled', {_spent("usage", "cost_usd")}, 'sub', {_spent("sub_usage", "sub_cost_usd")})
    WHERE coalesce(usage, cost_usd, sub_usage, sub_cost_usd) IS NOT NULL
    """,
    # A state that cannot be read: the views of these runs are made anew from their logs.
    "UPDATE worker_folds SET state = '{}' WHERE worker_id IN (SELECT id FROM worker_runs WHERE told IS NOT NULL)",
    *(
        f"ALTER TABLE worker_runs DROP COLUMN {column}"
        for column in ("usage", "cost_usd", "told", "sub_usage", "sub_cost_usd")
    ),
)


def upgrade() -> None:
    for statement in _STATEMENTS:
        op.execute(statement)
