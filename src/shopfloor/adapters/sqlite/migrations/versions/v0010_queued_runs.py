"""What is queued is the first event of its run."""

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


def upgrade() -> None:
    op.execute(_REWRITE)
