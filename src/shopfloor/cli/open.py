"""`shopfloor open`: open the page in a browser, at a run."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from urllib.parse import quote

import anyio

from shopfloor.cli.arguments import RUN_HELP, Parser, storage_from_args
from shopfloor.cli.client_session import resolve_run_id
from shopfloor.client import Api, find_storage_server, server_from_environment
from shopfloor.errors import ServerUnreachable
from shopfloor.wiring import access_control

EXAMPLES = """\
  shopfloor open          the list of runs
  shopfloor open last     the newest run
  shopfloor open 5f3a     the run 5f3a…

The browser is logged in by a link that works once. Without a browser, the link
is only printed."""


def parser(name: str, summary: str) -> ArgumentParser:
    """Return the parser of the command's arguments."""
    parser = Parser(name, summary, examples=EXAMPLES)
    parser.add_argument("run", metavar="RUN", nargs="?", help=RUN_HELP)
    parser.add_argument("--print", action="store_true", help="only print the link")
    return parser


def run(args: Namespace) -> int:
    """Print the link, and open it in a browser if there is one."""
    link = anyio.run(_link, args)
    print(link, flush=True)
    if not args.print and not _open_browser(link):
        print("shopfloor: no browser was found; open the link yourself", file=sys.stderr)
    return 0


async def _link(args: Namespace) -> str:
    storage = storage_from_args(args)
    remote = server_from_environment()
    address = remote or find_storage_server(storage)
    if address is None:
        raise ServerUnreachable(f"no server is running on {storage.root}", hint="start one with `shopfloor up`")
    path = "/"
    if args.run is not None:
        api = Api(address.url, address.token)
        try:
            path = f"/runs/{await resolve_run_id(api, args, args.run)}"
        finally:
            await api.close()
    if remote is not None:
        return f"{address.link_url}{path}"
    code = await access_control(storage).make_login_code()
    return f"{address.link_url}/login?code={code}&next={quote(path, safe='')}"


def _open_browser(link: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False
