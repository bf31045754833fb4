"""`shopfloor tokens`: list, create and revoke access tokens and browser sessions."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

import anyio

from shopfloor.cli.arguments import Parser, storage_from_args
from shopfloor.cli.json_output import add_json_option, print_json
from shopfloor.cli.style import escape_controls
from shopfloor.client import find_storage_server
from shopfloor.errors import ConflictError, UsageError
from shopfloor.ports import Session, Token, audit_entry
from shopfloor.record import Storage
from shopfloor.server import AccessControl
from shopfloor.wiring import access_control, local_process_name, open_audit

EXAMPLES = """\
  shopfloor tokens list                     list tokens and browser sessions
  shopfloor tokens new ci --role operator   create a token for a program
  shopfloor tokens revoke ci                revoke a token and its sessions
  shopfloor tokens revoke 1a2b3c4d          revoke a session by its id"""
_LIST = """\
  shopfloor tokens list          one line each
  shopfloor tokens list --json   for programs"""
_NEW = """\
  shopfloor tokens new dashboard            viewer: may read
  shopfloor tokens new ci --role operator   also dispatch, answer, cancel, delete
  TOKEN=$(shopfloor tokens new script)      only the token goes to stdout"""
_REVOKE = """\
  shopfloor tokens revoke ci         by name, with the sessions that it started
  shopfloor tokens revoke 1a2b3c4d   by the id in `shopfloor tokens list`"""

_LOOPBACK: Final = ("127.0.0.1", "::1")


def parser(name: str, summary: str) -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    listing = parser.add_command("list", "List tokens and browser sessions", examples=_LIST)
    add_json_option(listing)

    new = parser.add_command("new", "Create a token and print it once", examples=_NEW)
    new.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="name of the token in lists and in the audit log (default: its role)",
    )
    new.add_argument(
        "--role", choices=("viewer", "operator", "admin"), default="viewer", help="what it may do (default: viewer)"
    )

    add_json_option(new)

    revoke = parser.add_command("revoke", "Revoke tokens and browser sessions", examples=_REVOKE)
    revoke.add_argument("names", metavar="TOKEN", nargs="+", help="name or id of a token, or id of a session")
    add_json_option(revoke, "print a line of JSON for each token and session")
    return parser


def run(args: argparse.Namespace) -> int:
    """Execute the inner command."""
    anyio.run(_run, args)
    return 0


async def _run(args: argparse.Namespace) -> None:
    storage = storage_from_args(args)
    access = access_control(storage)
    audit = open_audit(storage)
    match args.part:
        case "new":
            args.name = args.name or args.role
            if not args.name.isprintable():
                raise UsageError("the name of a token must be one line of printable text", hint="e.g. ci")
            token = await access.issue_token(args.role, args.name)
            await audit.write(audit_entry("token.made", by=local_process_name(), detail=f"{args.name}, {args.role}"))
            if args.json:
                print_json({"name": args.name, "role": args.role, "token": token})
            else:
                print(token)
            for line in _instructions(storage, args.name, token):
                print(line, file=sys.stderr)
        case "revoke":
            for name in args.names:
                for revoked in await _revoke(access, storage, name):
                    action = "token.revoked" if revoked.startswith("token") else "session.ended"
                    await audit.write(audit_entry(action, by=local_process_name(), detail=revoked))
                    if args.json:
                        print_json({"revoked": revoked})
                    else:
                        print(f"revoked {escape_controls(revoked)}", flush=True)
        case _:
            _list(*await access.list_credentials(), as_json=args.json)


def _instructions(storage: Storage, name: str, token: str) -> Iterator[str]:
    """Yield how a colleague or a program uses a new token."""
    yield f"the token is not shown again; `shopfloor tokens revoke {escape_controls(name)}` revokes it"
    address = find_storage_server(storage)
    if address is None:
        yield "a browser is logged in by /login?token=TOKEN of the server; `shopfloor up` starts one"
        return
    yield f"link for a browser: {address.link_url}/login?token={token}"
    yield f"for the command line: SHOPFLOOR_URL={address.link_url} SHOPFLOOR_TOKEN=TOKEN shopfloor list"
    if not address.is_shared:
        yield "the server listens on this machine only; `shopfloor up --host 0.0.0.0` serves others too"
    elif (host := urlsplit(address.link_url).hostname) in _LOOPBACK:
        yield f"other machines need an address of this machine instead of {host}"


async def _revoke(access: AccessControl, storage: Storage, name: str) -> list[str]:
    try:
        return await access.revoke(name)
    except ConflictError as error:
        hint = f"stop the server and delete {storage.tokens}; the next server creates a new token"
        raise ConflictError(error.message, hint=hint) from error


def _list(tokens: list[Token], sessions: list[Session], *, as_json: bool) -> None:
    rows = [
        {"kind": "token", "id": token.id, "name": token.label, "role": token.role, "made_at": token.made_at}
        for token in tokens
    ] + [
        {
            "kind": "session",
            "id": session.id,
            "name": session.label,
            "role": session.role,
            "made_at": _format_time(session.made_at),
            "renewed_at": _format_time(session.renewed_at),
            "address": session.address,
            "client": session.client,
        }
        for session in sessions
    ]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        more = escape_controls(f"{row.get('address') or ''}  {row.get('client') or ''}".rstrip())
        name = escape_controls(str(row["name"]))
        line = f"{row['kind']:<8}{row['id']}  {row['role']:<9} {row['made_at'] or '-':<24}  {name}"
        print(f"{line}  {more}".rstrip())


def _format_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
