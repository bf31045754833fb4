"""Compression of responses: large JSON only."""

from __future__ import annotations

import httpx
import pytest
from tests.server.recorded_runs import RecordedRuns

LIST = "/api/agents/workers?limit=50"


def test_json_is_compressed_for_a_client_that_accepts_it(client: httpx.Client) -> None:
    plain = client.get(LIST, headers={"Accept-Encoding": "identity"})
    packed = client.get(LIST, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert "accept-encoding" in packed.headers["vary"].lower()
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) * 2 < int(plain.headers["content-length"])


def test_an_error_is_readable_compressed_or_not(client: httpx.Client) -> None:
    got = client.get("/api/agents/workers?limit=0", headers={"Accept-Encoding": "gzip"})
    assert (got.status_code, got.json()["error"]["code"]) == (400, "invalid_parameter")


def test_a_log_as_a_file_has_its_size_and_its_bytes(client: httpx.Client, runs: RecordedRuns) -> None:
    address = f"/api/runs/{runs.done}/log.jsonl"
    got = client.get(address, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in got.headers
    assert int(got.headers["content-length"]) == len(got.content)


@pytest.mark.parametrize("address", ["/api/runs/{}/stream", "/api/stream?runs={}:0"])
def test_a_stream_is_not_buffered_for_compression(client: httpx.Client, runs: RecordedRuns, address: str) -> None:
    with client.stream("GET", address.format(runs.done), headers={"Accept-Encoding": "gzip"}) as got:
        assert got.status_code == 200
        assert "content-encoding" not in got.headers
        assert next(got.iter_bytes())
