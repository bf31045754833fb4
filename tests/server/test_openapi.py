"""The OpenAPI document is correct, and the API reference needs no script."""

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks
from tests.server.recorded_runs import RecordedRuns, record_runs
from tests.server.server import RunningServer, open_server

from shopfloor.adapters.memory import MemoryStore, MemoryTokens, MemoryWatchers
from shopfloor.log import is_run_id
from shopfloor.record import Storage
from shopfloor.server import AccessControl, Services, create_app


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


PAGES = ["/", "/api/docs"]


@pytest.mark.parametrize("address", PAGES)
def test_a_page_has_no_script_and_nothing_from_other_sites(client: httpx.Client, address: str) -> None:
    got = client.get(address)
    assert (got.status_code, got.headers["content-type"]) == (200, "text/html; charset=utf-8")
    elements = Elements(got.text).found
    assert [tag for tag, _ in elements if tag in ("script", "style", "iframe", "img")] == []
    assert [attrs for _, attrs in elements if any(name.startswith("on") or name == "style" for name in attrs)] == []
    links = [attrs[name] or "" for _, attrs in elements for name in ("href", "src") if name in attrs]
    assert [link for link in links if not link.startswith(("/", "#"))] == []
    for link in {link for link in links if link.startswith("/")}:
        assert client.get(link).status_code == 200


def test_the_front_page_shows_the_version_and_links_to_the_api_reference(client: httpx.Client) -> None:
    page = client.get("/").text
    assert "1.2.3" in page
    assert 'href="/api/docs"' in page


def test_the_api_reference_has_every_path_and_schema(client: httpx.Client, server: RunningServer) -> None:
    page = client.get("/api/docs").text
    described = server.app.state.openapi()
    ids = {attrs["id"] for _, attrs in Elements(page).found if "id" in attrs}
    assert ids == set(described["components"]["schemas"])
    for path, methods in described["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in page
    targets = {
        (attrs.get("href") or "")[1:]
        for tag, attrs in Elements(page).found
        if (attrs.get("href") or "").startswith("#")
    }
    assert targets <= ids


def test_every_operation_describes_itself_and_its_responses(client: httpx.Client) -> None:
    described = client.get("/api/openapi.json").json()
    operations = [operation for methods in described["paths"].values() for operation in methods.values()]
    assert [operation["operationId"] for operation in operations if not operation.get("description")] == []
    assert all({"200", "default"} <= set(operation["responses"]) for operation in operations)
    assert [
        (operation["operationId"], p["name"])
        for operation in operations
        for p in operation.get("parameters", ())
        if not p.get("description")
    ] == []


def test_every_referenced_schema_is_defined(client: httpx.Client) -> None:
    described = client.get("/api/openapi.json").json()
    names = {ref.rsplit("/", 1)[1] for ref in _refs(described)}
    assert names <= set(described["components"]["schemas"])


def _refs(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if isinstance(value.get("$ref"), str) else set()
        return own.union(*(_refs(operation) for operation in value.values()))
    if isinstance(value, list):
        return set().union(*(_refs(operation) for operation in value))
    return set()


# Schemathesis: no 5xx, and every response conforms to the document.

CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]


NOTHING: Any = None
# The document is made from the models alone and does not depend on the services.
_SERVED = Services(
    store=MemoryStore(),
    logs=NOTHING,
    changes=NOTHING,
    access=AccessControl(MemoryTokens()),
    watchers=MemoryWatchers(),
    version="1",
)
# Streams have no end; other tests cover their parameters.
API = schemathesis.openapi.from_dict(create_app(_SERVED).state.openapi()).exclude(path_regex="stream$")


@pytest.fixture(scope="module")
def changing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, RecordedRuns]]:
    """A separate server, since these requests change runs."""
    storage = Storage(tmp_path_factory.mktemp("changing") / "storage")
    runs = record_runs(storage)
    with open_server(storage) as server:
        yield server, runs
    runs.close()


@API.parametrize()
@settings(
    max_examples=settings().max_examples // 8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_response_conforms_to_the_openapi_document(
    case: Any, changing: tuple[RunningServer, RecordedRuns]
) -> None:
    server, runs = changing
    # Generated ids belong to no run: replace a valid id by that of an existing run.
    for parameters, name in ((case.path_parameters, "run_id"), (case.query, "worker_id")):
        if is_run_id(str((parameters or {}).get(name))):
            parameters[name] = runs.done
    headers = {"Authorization": f"Bearer {server.tokens.admin_token()}"}
    case.call_and_validate(base_url=server.url, headers=headers, checks=CHECKS)
