"""What a worker of taskiq loads: its broker, and a task that does nothing. By name, as only `make bench` needs it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

RESULTS = "result"
QUEUE = "tasks"
URL = os.environ.get("BENCH_REDIS_URL", "")

_taskiq: Any = import_module("taskiq_redis")
# Without a time limit: between rounds, workers wait for long.
broker: Any = _taskiq.ListQueueBroker(URL, queue_name=QUEUE, socket_timeout=None).with_result_backend(
    _taskiq.RedisAsyncResultBackend(URL, prefix_str=RESULTS)
)


@broker.task
async def nothing() -> None:
    return None
