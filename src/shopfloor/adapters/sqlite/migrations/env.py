"""Alembic's way in: it is given the connection, and never makes one."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
