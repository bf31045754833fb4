"""The built page and its files, and the pages for browsers without a token or with an unknown path."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import httpx
import pytest
from tests.sample_events import ROOT
from tests.server.recorded_runs import RecordedRuns, open_announced_log, run_started
from tests.server.server import RunningServer, open_server
from tests.timeouts import TIMEOUT_SECONDS

from shopfloor.log import new_run_id
from shopfloor.record import Storage
from shopfloor.server import PAGE_FOLDER
from shopfloor.server.auth import LOGIN_PATH
from shopfloor.server.html_pages import DARK, LIGHT, STYLESHEET

INDEX = '<!doctype html><html><head><script type="module" src="/assets/index-a1b2.js"></script></head></html>'
SCRIPT = "console.log('é');\n" * 100
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
PAGES = ["/", "/agents/all/workers", "/agents/a b/workers", "/fleet"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A built page, with a secret file beside it."""
    beside = tmp_path_factory.mktemp("built")
    (beside / "secret.txt").write_text("a secret")
    folder = beside / "page"
    (folder / "assets" / "more.js").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "assets" / "index-a1b2.js").write_text(SCRIPT)
    (folder / "assets" / "style-C3_d4.css").write_text("body { color: red }")
    (folder / "assets" / "font-1.woff2").write_bytes(b"\0packed")
    (folder / "assets" / "program.sh").write_text("a secret")
    (folder / "assets" / "link.js").symlink_to(beside / "secret.txt")
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[RunningServer]:
    with open_server(Storage(tmp_path_factory.mktemp("server") / "storage"), page_folder=folder) as server:
        yield server


@pytest.fixture
def reader(built: RunningServer) -> Iterator[httpx.Client]:
    with built.client("viewer") as client:
        yield client


@pytest.fixture
def anonymous_client(server: RunningServer) -> Iterator[httpx.Client]:
    with server.anonymous_client(headers=BROWSER) as client:
        yield client


# The page and its files


@pytest.mark.parametrize("address", PAGES)
def test_every_path_of_the_page_returns_the_page(reader: httpx.Client, address: str) -> None:
    got = reader.get(address, headers=BROWSER)
    assert (got.status_code, got.text) == (200, INDEX)
    assert got.headers["content-type"] == "text/html; charset=utf-8"
    assert got.headers["cache-control"] == "no-cache"
    assert "default-src 'self'" in got.headers["content-security-policy"]
    assert "camera=()" in got.headers["permissions-policy"]


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("assets/index-a1b2.js", "text/javascript; charset=utf-8"),
        ("assets/style-C3_d4.css", "text/css; charset=utf-8"),
        ("assets/font-1.woff2", "font/woff2"),
    ],
)
def test_files_of_the_page_are_immutable(reader: httpx.Client, folder: Path, name: str, media_type: str) -> None:
    got = reader.get(f"/{name}")
    assert (got.status_code, got.content) == (200, (folder / name).read_bytes())
    assert got.headers["content-type"] == media_type
    assert got.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert got.headers["x-content-type-options"] == "nosniff"


def test_the_icon_is_revalidated(reader: httpx.Client) -> None:
    got = reader.get("/favicon.svg")
    assert (got.status_code, got.headers["content-type"]) == (200, "image/svg+xml")
    assert got.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("", False),
        ("br", False),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("gzipped", False),
    ],
)
def test_a_file_is_compressed_for_clients_that_accept_it(reader: httpx.Client, accepted: str, packed: bool) -> None:
    with reader.stream("GET", "/assets/index-a1b2.js", headers={"Accept-Encoding": accepted}) as got:
        body = b"".join(got.iter_raw())
    assert (got.headers.get("content-encoding") == "gzip") is packed
    assert got.headers["vary"] == "Accept-Encoding"
    assert len(body) == int(got.headers["content-length"])
    assert (gzip.decompress(body) if packed else body).decode() == SCRIPT


def test_compressed_formats_are_not_compressed_again(reader: httpx.Client) -> None:
    assert "content-encoding" not in reader.get("/assets/font-1.woff2").headers


@pytest.mark.parametrize("accepted", ["gzip", "identity"])
@pytest.mark.parametrize("address", ["/", "/assets/index-a1b2.js"])
def test_an_unchanged_file_is_not_sent_again(reader: httpx.Client, address: str, accepted: str) -> None:
    headers = {"Accept-Encoding": accepted}
    etag = reader.get(address, headers=headers).headers["etag"]
    for value in (etag, f'"other", W/{etag}', "*"):
        got = reader.get(address, headers=headers | {"If-None-Match": value})
        assert (got.status_code, got.content, got.headers["etag"]) == (304, b"", etag)
    assert reader.get(address, headers=headers | {"If-None-Match": '"other"'}).status_code == 200


def test_compressed_and_plain_files_have_different_etags(reader: httpx.Client) -> None:
    tags = {
        reader.get("/assets/index-a1b2.js", headers={"Accept-Encoding": value}).headers["etag"]
        for value in ("gzip", "")
    }
    assert len(tags) == 2


def test_a_rebuilt_page_is_served(own_storage: Storage, tmp_path: Path) -> None:
    folder = tmp_path / "page"
    with open_server(own_storage, page_folder=folder) as server, server.client() as client:
        assert "make page" in client.get("/").text
        (folder / "assets").mkdir(parents=True)
        for version in ("one", "another"):
            (folder / "index.html").write_text(version)
            (folder / "assets" / f"{version}.js").write_text(version)
            got = client.get("/")
            assert (got.text, client.get(f"/assets/{version}.js").text) == (version, version)


@pytest.mark.parametrize(
    "name",
    [
        "../index.html",
        "..%2findex.html",
        "..%2f..%2fsecret.txt",
        "%2e%2e/%2e%2e/secret.txt",
        "..%5c..%5csecret.txt",
        "%2fetc%2fpasswd",
        "..",
        ".",
        ".hidden.js",
        "index-a1b2.js%00",
        "index-a1b2.js/",
        "more.js",
        "link.js",
        "program.sh",
        "nothing.js",
        "noname",
        "%C3%A9.js",
        "a" * 5_000 + ".js",
    ],
)
def test_only_files_of_the_page_are_served(built: RunningServer, name: str) -> None:
    # Send raw bytes: an HTTP client would normalize the path first.
    with closing(HTTPConnection(built.host, timeout=TIMEOUT_SECONDS)) as connection:
        connection.request("GET", f"/assets/{name}", headers={"Authorization": f"Bearer {built.tokens.admin_token()}"})
        got = connection.getresponse()
        body = got.read().decode()
    assert (got.status, json.loads(body)["error"]["code"]) == (404, "not_found")
    assert "a secret" not in body


def test_the_page_and_its_files_need_a_token(built: RunningServer) -> None:
    with built.anonymous_client() as anonymous_client:
        for address in (*PAGES, "/assets/index-a1b2.js", "/favicon.svg"):
            assert anonymous_client.get(address).status_code == 401


@pytest.mark.parametrize("address", PAGES)
def test_a_notice_replaces_a_page_that_is_not_built(client: httpx.Client, address: str) -> None:
    got = client.get(address)
    assert (got.status_code, got.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "<code>make page</code>" in got.text
    assert 'href="/api/docs"' in got.text


def test_the_page_folder_is_beside_the_server() -> None:
    assert PAGE_FOLDER.parts[-3:] == ("shopfloor", "server", "page")


# Browsers without a token, and unknown paths


@pytest.mark.parametrize("address", [*PAGES, "/nowhere", "/api/docs"])
@pytest.mark.parametrize("cookie", [{}, {"Cookie": "shopfloor_session_1a2b3c4d=wrong"}], ids=["none", "wrong"])
def test_a_browser_without_a_valid_token_gets_the_login_page(
    anonymous_client: httpx.Client, address: str, cookie: dict[str, str]
) -> None:
    got = anonymous_client.get(address, headers=cookie)
    assert (got.status_code, got.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert got.headers["www-authenticate"] == "Bearer"
    assert got.headers["cache-control"] == "no-store"
    assert "<pre>shopfloor login</pre>" in got.text
    # The style sheet needs no token.
    (style,) = re.findall(r'<link rel="stylesheet" href="([^"]+)">', got.text)
    assert anonymous_client.get(style).headers["content-type"] == "text/css; charset=utf-8"
    assert "<script" not in got.text
    assert "<style" not in got.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("address", "again"),
    [
        ("/agents/all/workers?worker=a&event=3", "/agents/all/workers?worker=a&event=3"),
        ("/agents/%22%3E%3Cscript%3E/workers", "/agents/%22%3E%3Cscript%3E/workers"),
        ("//evil.example/", "/evil.example/"),
    ],
)
def test_a_cross_site_link_is_refreshed_once_from_this_site(
    anonymous_client: httpx.Client, site: str, address: str, again: str
) -> None:
    came = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    got = anonymous_client.get(f"{anonymous_client.base_url}".rstrip("/") + address, headers=came)
    assert (got.status_code, got.headers["refresh"]) == (200, f"0; url={again}")
    assert "<script" not in got.text
    then = anonymous_client.get(again, headers=came | {"Sec-Fetch-Site": "same-origin"})
    assert (then.status_code, "refresh" in then.headers) == (401, False)


@pytest.mark.parametrize("address", ["/api/health", "/api/agents/workers", "/api/nowhere", "/api"])
def test_requests_to_the_api_get_json_errors_whatever_they_accept(anonymous_client: httpx.Client, address: str) -> None:
    assert anonymous_client.get(address).json()["error"]["code"] == "unauthorized"


def test_clients_that_do_not_accept_html_get_json(anonymous_client: httpx.Client, server: RunningServer) -> None:
    for accepted in ("*/*", "application/json", "text/html+x", "text/plain"):
        assert anonymous_client.get("/", headers={"Accept": accepted}).json()["error"]["code"] == "unauthorized"
    assert anonymous_client.post("/").json()["error"]["code"] == "unauthorized"


def test_a_wrong_login_link_gets_a_page(anonymous_client: httpx.Client) -> None:
    got = anonymous_client.get(LOGIN_PATH, params={"token": "<b>wrong"})
    assert (got.status_code, got.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "This login link is not valid" in got.text
    assert "set-cookie" not in got.headers


def test_pages_of_the_server_have_the_colors_of_the_built_page() -> None:
    tokens = dict(
        re.findall(r"--([\w-]+): ([^;]+);", (ROOT / "web" / "src" / "tokens.css").read_text(encoding="utf-8"))
    )

    def color(name: str, theme: int) -> str:
        """Return the color of a token in a theme: 0 is light, 1 is dark."""
        value = tokens[name]
        if referred := re.fullmatch(r"var\(--([\w-]+)\)", value):
            return color(referred[1], theme)
        return re.findall(r"#\w+", value)[theme]

    for theme, ours in enumerate((LIGHT, DARK)):
        assert ours == {name: color(name, theme) for name in ours}
    for colours in (LIGHT, DARK):
        assert all(f"--{name}: {value};" in STYLESHEET for name, value in colours.items())


@pytest.mark.parametrize("address", ["/nowhere", "/agents", "/agents/a/b", "/assets/none.js", "/<b>x</b>"])
def test_an_unknown_page_links_to_the_front_page(client: httpx.Client, address: str) -> None:
    got = client.get(address, headers=BROWSER)
    assert (got.status_code, got.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "There is nothing at /" in got.text
    assert '<a href="/">' in got.text
    assert "<b>" not in got.text


@pytest.mark.parametrize("address", ["/api/nowhere", "/api/runs/none/log", "/api/", "/api"])
def test_an_unknown_path_of_the_api_gets_a_json_error(client: httpx.Client, address: str) -> None:
    assert set(client.get(address, headers=BROWSER).json()["error"]) == {"code", "message", "hint"}


def test_a_page_of_another_site_is_refused_with_a_page(server: RunningServer) -> None:
    with server.client() as client:
        got = client.get("/", headers=BROWSER | {"Host": "evil.example"})
    assert (got.status_code, got.headers["content-type"]) == (403, "text/html; charset=utf-8")
    assert "evil.example" in got.text


# The redirect of the login


@pytest.mark.parametrize(
    ("value", "leads_to"),
    [
        ("/agents/all/workers?worker=abc&x=1", "/agents/all/workers?worker=abc&x=1"),
        ("/fleet#x", "/fleet#x"),
        ("/agents/all/workers?q=a//b", "/agents/all/workers?q=a//b"),
        ("/é", "/%C3%A9"),
        ("/", "/"),
        ("", "/"),
        ("fleet", "/"),
        ("//evil.example", "/"),
        ("///evil.example", "/"),
        ("/x//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/x?\\evil", "/"),
        ("\\\\evil.example", "/"),
        ("/\t/evil.example", "/"),
        ("/\n/evil.example", "/"),
        ("/x\r\nSet-Cookie: a=b", "/"),
        ("https://evil.example", "/"),
        ("javascript:alert(1)", "/"),
        (" /fleet", "/"),
    ],
)
def test_the_login_redirects_only_to_this_server(server: RunningServer, value: str, leads_to: str) -> None:
    with server.anonymous_client() as browser:
        got = browser.get(LOGIN_PATH, params={"token": server.tokens.admin_token(), "next": value})
    assert (got.status_code, got.headers["location"]) == (303, leads_to)
    assert "set-cookie" in got.headers


def test_a_wrong_login_does_not_redirect(anonymous_client: httpx.Client, runs: RecordedRuns) -> None:
    got = anonymous_client.get(LOGIN_PATH, params={"token": "wrong", "next": f"/agents/all/workers?worker={runs.done}"})
    assert (got.status_code, "location" in got.headers) == (401, False)


# Short ids


@pytest.mark.req("")
def test_a_short_id_opens_the_only_run_whose_id_begins_with_it(own_storage: Storage) -> None:
    ids = [f"face{number}000-0000-4000-8000-000000000000" for number in (1, 2)]
    for run_id in ids:
        with open_announced_log(own_storage, run_id) as recorder:
            recorder.append(run_started(task="an old run"))
    for _ in range(101):
        # Newer runs that a search for the short id finds.
        with open_announced_log(own_storage, new_run_id()) as recorder:
            recorder.append(run_started(task="detect a face2 in face1"))
    with open_server(own_storage) as server, server.client() as client:
        for short in ("face2", "face2000-0000", ids[1]):
            opened = client.get(f"/runs/{short}")
            assert (opened.status_code, opened.headers["location"]) == (303, f"/agents/tester/workers?worker={ids[1]}")
            front = client.get("/agents/all/workers", params={"worker": short, "x": "1"})
            assert short == ids[1] or front.headers["location"] == f"/agents/all/workers?worker={ids[1]}&x=1"
        for several in ("face", "fade", "FACE1", "fac"):
            assert client.get(f"/runs/{several}").status_code == 404
