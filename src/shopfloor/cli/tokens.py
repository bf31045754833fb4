"""`shopfloor tokens`: who has access to the server of a storage."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from typing import Any

import anyio

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.style import escape_controls
from shopfloor.errors import ConflictError
from shopfloor.ports import Session, Token, audit_entry
from shopfloor.record import Storage
from shopfloor.server import AccessControl
from shopfloor.wiring import access_control, local_process_name, open_audit

EXAMPLES = """\
  shopfloor tokens list                      the tokens and browser sessions that there are
  shopfloor tokens new ci --role operator    a token for a program; it is printed once
  shopfloor tokens revoke ci                 a token by its name or id, with the sessions that it began
  shopfloor tokens revoke 1a2b3c4d           a session by its id"""
_LIST = """\
  shopfloor tokens list          a line each
  shopfloor tokens list --json   for programs"""
_NEW = """\
  shopfloor tokens new dashboard                  it may read
  shopfloor tokens new ci --role operator         it may also dispatch, answer, cancel and delete
  TOKEN=$(shopfloor tokens new script)            only the token is printed on stdout"""
_REVOKE = """\
  shopfloor tokens revoke ci          from now on it is refused, and so are the sessions that it began
  shopfloor tokens revoke 1a2b3c4d    by the id that `shopfloor tokens list` shows"""


class _Part(Parser):
    """The parser of one of the commands in here."""

    def __init__(self, *, prog: str, summary: str, examples: str, **_: Any) -> None:
        super().__init__(prog.removeprefix("shopfloor "), summary, examples=examples)
        # Options that were given before the command keep their values.
        for action in self._actions:
            if action.dest in ("storage", "debug"):
                action.default = argparse.SUPPRESS


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    parser = Parser(name, summary, examples=EXAMPLES)
    parts = parser.add_subparsers(dest="part", metavar="COMMAND", required=True, parser_class=_Part)
    summaries = {
        "list": "List tokens and browser sessions",
        "new": "Make a token and print it, once",
        "revoke": "Revoke tokens and sessions",
    }
    for part, examples in (("list", _LIST), ("new", _NEW), ("revoke", _REVOKE)):
        parts.add_parser(part, help=summaries[part], summary=summaries[part], examples=examples)
    parts.choices["list"].add_argument("--json", action="store_true", help="for programs")
    parts.choices["new"].add_argument(
        "name", metavar="NAME", help="what the token is called in lists and in the audit log"
    )
    parts.choices["new"].add_argument(
        "--role", choices=("viewer", "operator", "admin"), default="viewer", help="what it may do (default: viewer)"
    )
    parts.choices["revoke"].add_argument("names", metavar="TOKEN", nargs="+", help="a name or an id")
    return parser


def run(args: argparse.Namespace) -> int:
    anyio.run(_run, args)
    return 0


async def _run(args: argparse.Namespace) -> None:
    storage = storage_from_args(args)
    access = access_control(storage)
    audit = open_audit(storage)
    match args.part:
        case "new":
            token = await access.issue_token(args.role, args.name)
            await audit.write(audit_entry("token.made", by=local_process_name(), detail=f"{args.name}, {args.role}"))
            print(token)
            print(
                f"it is shown only here; `shopfloor tokens revoke {escape_controls(args.name)}` revokes it",
                file=sys.stderr,
            )
        case "revoke":
            for name in args.names:
                for gone in await _revoke(access, storage, name):
                    action = "token.revoked" if gone.startswith("token") else "session.ended"
                    await audit.write(audit_entry(action, by=local_process_name(), detail=gone))
                    print(f"revoked {escape_controls(gone)}", flush=True)
        case _:
            _list(*await access.list_credentials(), as_json=args.json)


async def _revoke(access: AccessControl, storage: Storage, name: str) -> list[str]:
    try:
        return await access.revoke(name)
    except ConflictError as error:
        hint = f"stop the server and delete {storage.tokens}: a new token is made"
        raise ConflictError(error.message, hint=hint) from error


def _list(kept: list[Token], sessions: list[Session], *, as_json: bool) -> None:
    rows = [
        {"kind": "token", "id": one.id, "name": one.label, "role": one.role, "made_at": one.made_at} for one in kept
    ] + [
        {
            "kind": "session",
            "id": one.id,
            "name": one.label,
            "role": one.role,
            "made_at": _time(one.made_at),
            "renewed_at": _time(one.renewed_at),
            "address": one.address,
            "client": one.client,
        }
        for one in sessions
    ]
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        more = escape_controls(f"{row.get('address') or ''}  {row.get('client') or ''}".rstrip())
        name = escape_controls(str(row["name"]))
        line = f"{row['kind']:<8}{row['id']}  {row['role']:<9} {row['made_at'] or '-':<24}  {name}"
        print(f"{line}  {more}".rstrip())


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
