"""The broker and the empty task that a taskiq worker loads.

Imported by name, because taskiq is installed for `make bench` only.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

RESULTS = "result"
QUEUE = "tasks"
URL = os.environ.get("BENCH_REDIS_URL", "")

_taskiq: Any = import_module("taskiq_redis")
# Without a timeout, because workers wait for a long time between rounds.
broker: Any = _taskiq.ListQueueBroker(URL, queue_name=QUEUE, socket_timeout=None).with_result_backend(
    _taskiq.RedisAsyncResultBackend(URL, prefix_str=RESULTS)
)


@broker.task
async def nothing() -> None:
    return None
