"""The machine of a host: where it is, what it has, and how busy it is. Sends no network request."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from shopfloor.ports import HostLocation, HostMetrics, HostResources

ReadFile = Callable[[str], str | None]
"""Returns the text of a file; None if there is no such file, or it cannot be read."""

_NAMESPACE: Final = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
_HOSTNAME: Final = "/etc/hostname"
_HOSTS: Final = "/etc/hosts"
_DOCKER: Final = "/.dockerenv"
_CGROUP: Final = "/proc/self/cgroup"
_MOUNTS: Final = "/proc/self/mountinfo"
_CLOUD_INIT: Final = "/run/cloud-init/instance-data.json"
_DMI: Final = "/sys/class/dmi/id/"
_CGROUP_MEMORY: Final = "/sys/fs/cgroup/memory.max"
_CGROUP_MEMORY_USED: Final = "/sys/fs/cgroup/memory.current"
_CGROUP_MEMORY_STAT: Final = "/sys/fs/cgroup/memory.stat"
_CGROUP_CPU: Final = "/sys/fs/cgroup/cpu.max"
_GPUS: Final = "/proc/driver/nvidia/gpus"
_CONTAINER_IN_CGROUP: Final = re.compile(r"docker[-/]([0-9a-f]{64})")
_SHORT_CONTAINER: Final = re.compile(r"[0-9a-f]{12}")
"""The name that Docker gives to a container's machine, unless another one is set."""
_POD_HOSTS: Final = "# Kubernetes-managed hosts file."
"""The first line of a pod's file of hosts. A pod in the network of its node has another one, and the node's name."""
_CONTAINER_IN_MOUNTS: Final = re.compile(r"/docker/containers/([0-9a-f]{64})/")
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}")
_CACHED_FILES: Final = re.compile(r"^inactive_file (\d+)$", re.MULTILINE)
_MEGABYTE: Final = 1_000_000
_GIGABYTE: Final = 1_000_000_000


def find_location(env: Mapping[str, str], read: ReadFile) -> HostLocation:
    """Return where a process is, by the environment and the files that each kind of machine leaves."""
    hostname = env.get("HOSTNAME") or _strip(read(_HOSTNAME))
    if env.get("KUBERNETES_SERVICE_HOST"):
        namespace = env.get("POD_NAMESPACE") or _strip(read(_NAMESPACE))
        has_own_name = (read(_HOSTS) or "").startswith(_POD_HOSTS)
        pod = env.get("POD_NAME") or (hostname if has_own_name else None)
        return HostLocation(type="kubernetes", namespace=namespace, pod=pod)
    in_cgroup = _CONTAINER_IN_CGROUP.search(read(_CGROUP) or "")
    if in_cgroup or read(_DOCKER) is not None:
        container = in_cgroup or _CONTAINER_IN_MOUNTS.search(read(_MOUNTS) or "")
        short = hostname if _SHORT_CONTAINER.fullmatch(hostname or "") else None
        return HostLocation(type="docker", container=container[1] if container else short)
    return _find_instance(env, read) or HostLocation(type="local")


def _find_instance(env: Mapping[str, str], read: ReadFile) -> HostLocation | None:
    """Return the instance of EC2, from what the hypervisor and cloud-init have written."""
    is_amazon = (read(f"{_DMI}sys_vendor") or "").startswith("Amazon EC2")
    cloud = _cloud_init(read(_CLOUD_INIT))
    if not is_amazon and cloud.get("cloud_name") != "aws":
        return None
    tag = _INSTANCE.fullmatch(_strip(read(f"{_DMI}board_asset_tag")) or "")
    region = cloud.get("region") or env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    return HostLocation(type="ec2", instance_id=tag[0] if tag else cloud.get("instance_id"), region=region)


def _cloud_init(text: str | None) -> dict[str, str]:
    """Return what cloud-init knows about the instance: `cloud_name`, `instance_id`, `region`."""
    with contextlib.suppress(ValueError, AttributeError):
        fields: dict[str, Any] = json.loads(text or "{}").get("v1", {})
        return {name: value for name, value in fields.items() if isinstance(value, str)}
    return {}


def _strip(text: str | None) -> str | None:
    return (text or "").strip() or None


def read_file(path: str) -> str | None:
    """Return the text of a file of this machine; None if it cannot be read."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return None


class LocalMachine:
    """This machine. Loads psutil when it measures, which blocks; call it in a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        """A folder on the disk that is measured."""
        self._started = time.monotonic()
        self._processor_times: tuple[float, float] | None = None
        """The busy and the total time of all processors at the last measurement."""

    @property
    def hostname(self) -> str:
        return socket.gethostname()

    @property
    def location(self) -> HostLocation:
        return find_location(os.environ, read_file)

    def measure_resources(self) -> HostResources:
        """Return the resources that this process may use."""
        import psutil

        # The first call only begins the measurement; without it, the first usage would be 0.
        self._measure_processors()
        memory = min(psutil.virtual_memory().total, _number(read_file(_CGROUP_MEMORY)))
        return HostResources(
            cpu_cores=usable_cores(len(os.sched_getaffinity(0)), read_file(_CGROUP_CPU)),
            memory_mb=int(memory / _MEGABYTE),
            disk_gb=round(psutil.disk_usage(str(self._folder)).total / _GIGABYTE),
            gpu_count=_count_gpus(),
        )

    def measure(self) -> HostMetrics:
        """Return how busy the machine is; the processors since the last call."""
        import psutil

        return HostMetrics(
            cpu_percent=self._measure_processors(),
            memory_percent=memory_percent(psutil.virtual_memory(), read_file),
            disk_percent=_percent(psutil.disk_usage(str(self._folder)).percent),
            uptime_seconds=round(time.monotonic() - self._started, 3),
        )

    def _measure_processors(self) -> float | None:
        """Return how busy the processors were since the last call, in percent; None if that was not measured.

        Not `psutil.cpu_percent`: it remembers its last call per thread, and returns 0 in a thread that is new.
        """
        import psutil

        times = psutil.cpu_times()._asdict()
        # On Linux the time of guests is part of the time of the users.
        total = sum(times.values()) - times.get("guest", 0.0) - times.get("guest_nice", 0.0)
        busy = total - times["idle"] - times.get("iowait", 0.0)
        previous, self._processor_times = self._processor_times, (busy, total)
        if previous is None or total <= previous[1]:
            return None
        return _percent(round((busy - previous[0]) / (total - previous[1]) * 100, 1))


class Memory(Protocol):
    """The memory of a machine, in bytes."""

    @property
    def total(self) -> int: ...

    @property
    def percent(self) -> float: ...


def memory_percent(machine: Memory, read: ReadFile) -> float:
    """Return how much of the memory that a process may use is used: of its container if that has a limit."""
    limit, used = _number(read(_CGROUP_MEMORY)), _number(read(_CGROUP_MEMORY_USED))
    if not 0 < limit < machine.total or used == math.inf:
        return _percent(machine.percent)
    # The kernel drops cached files when a process needs the memory.
    cached = _CACHED_FILES.search(read(_CGROUP_MEMORY_STAT) or "")
    return _percent(round((used - (int(cached[1]) if cached else 0)) / limit * 100, 1))


def usable_cores(count: int, cpu_max: str | None) -> int:
    """Return how many processors a process may use, of `count`, by the limit of its container (`cpu.max`)."""
    quota, _, period = (cpu_max or "").partition(" ")
    if not quota.isdecimal() or not period.strip().isdecimal() or not int(period):
        return count
    return min(count, max(1, math.ceil(int(quota) / int(period))))


def _percent(value: float) -> float:
    return min(100.0, max(0.0, value))


def _number(text: str | None) -> float:
    """Return the number in a file of limits; infinite if there is no limit."""
    stripped = _strip(text)
    return int(stripped) if stripped and stripped.isdecimal() else math.inf


def _count_gpus() -> int | None:
    with contextlib.suppress(OSError):
        return len(os.listdir(_GPUS)) or None
    return None
