"""Where a host is, by what each kind of machine leaves in its environment and files, and what it has."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from shopfloor.adapters.local.machine import LocalMachine, find_location, memory_percent, usable_cores
from shopfloor.ports import HostLocation

CONTAINER = "4f66ad9a0b2e5d1c" * 4
MOUNTS = f"36 35 254:1 /docker/containers/{CONTAINER}/hostname /etc/hostname rw,relatime - ext4 /dev/vda1 rw\n"
CLOUD = json.dumps({"v1": {"cloud_name": "aws", "instance_id": "i-0aaaaaaaaaaaaaaaa", "region": "eu-west-1"}})
NITRO = {
    "/sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
    "/sys/class/dmi/id/board_asset_tag": "i-0123456789abcdef0\n",
}
SERVICE = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
LOCATIONS = {
    "a pod with the variables of the downward API": (
        {**SERVICE, "POD_NAMESPACE": "prod", "POD_NAME": "hosts-7d4b", "HOSTNAME": "other"},
        {"/.dockerenv": "", ACCOUNT: "default"},
        HostLocation(type="kubernetes", namespace="prod", pod="hosts-7d4b"),
    ),
    "a pod with its service account only": (
        {**SERVICE, "HOSTNAME": "hosts-7d4b"},
        {ACCOUNT: "team-a\n", "/etc/hosts": "# Kubernetes-managed hosts file.\n127.0.0.1 localhost\n"},
        HostLocation(type="kubernetes", namespace="team-a", pod="hosts-7d4b"),
    ),
    "a pod in the network of its node, whose name it has": (
        {**SERVICE, "HOSTNAME": "node-1"},
        {ACCOUNT: "team-a\n", "/etc/hosts": "# Kubernetes-managed hosts file (host network).\n"},
        HostLocation(type="kubernetes", namespace="team-a"),
    ),
    "a container of Docker with a name that somebody chose": (
        {"HOSTNAME": "builder"},
        {"/.dockerenv": ""},
        HostLocation(type="docker"),
    ),
    "a container of Docker with cgroup v1": (
        {},
        {"/proc/self/cgroup": f"12:cpu:/docker/{CONTAINER}\n"},
        HostLocation(type="docker", container=CONTAINER),
    ),
    "a container of Docker with cgroup v2": (
        {"HOSTNAME": CONTAINER[:12]},
        {"/.dockerenv": "", "/proc/self/cgroup": "0::/\n", "/proc/self/mountinfo": MOUNTS},
        HostLocation(type="docker", container=CONTAINER),
    ),
    "a container whose id only its name tells": (
        {},
        {"/.dockerenv": "", "/etc/hostname": f"{CONTAINER[:12]}\n"},
        HostLocation(type="docker", container=CONTAINER[:12]),
    ),
    "an instance of EC2 with cloud-init": (
        {},
        {**NITRO, "/run/cloud-init/instance-data.json": CLOUD},
        HostLocation(type="ec2", instance_id="i-0123456789abcdef0", region="eu-west-1"),
    ),
    "an instance of EC2 that only cloud-init knows": (
        {},
        {"/run/cloud-init/instance-data.json": CLOUD},
        HostLocation(type="ec2", instance_id="i-0aaaaaaaaaaaaaaaa", region="eu-west-1"),
    ),
    "an instance of EC2 with a region in its environment": (
        {"AWS_REGION": "us-east-2"},
        NITRO,
        HostLocation(type="ec2", instance_id="i-0123456789abcdef0", region="us-east-2"),
    ),
    "an instance of EC2 whose region nobody knows": (
        {},
        NITRO,
        HostLocation(type="ec2", instance_id="i-0123456789abcdef0"),
    ),
    "another machine": (
        {"HOSTNAME": "desk", "AWS_REGION": "us-east-2"},
        {"/sys/class/dmi/id/sys_vendor": "LENOVO\n", "/run/cloud-init/instance-data.json": "not JSON"},
        HostLocation(type="local"),
    ),
}


@pytest.mark.req("FE-26")
@pytest.mark.parametrize("case", LOCATIONS)
def test_the_location_is_found_without_a_network(case: str) -> None:
    env, files, expected = LOCATIONS[case]
    assert find_location(env, files.get) == expected


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [(None, 8), ("max 100000", 8), ("150000 100000\n", 2), ("10000 100000", 1), ("9900000 100000", 8), ("x y", 8)],
)
def test_the_limit_of_a_container_counts_as_its_processors(cpu_max: str | None, expected: int) -> None:
    assert usable_cores(8, cpu_max) == expected


@pytest.mark.req("FE-27", "FE-30")
def test_resources_and_usage_are_measured(tmp_path: Path) -> None:
    machine = LocalMachine(tmp_path)
    resources, metrics = machine.measure_resources(), machine.measure()
    assert resources.cpu_cores >= 1
    assert resources.memory_mb > 100
    assert resources.disk_gb >= 1
    assert resources.gpu_count is None or resources.gpu_count > 0
    for percent in (metrics.cpu_percent, metrics.memory_percent, metrics.disk_percent):
        assert percent is None or 0 <= percent <= 100
    assert metrics.memory_percent > 0
    assert metrics.uptime_seconds >= 0


@pytest.mark.req("FE-30")
def test_processor_usage_is_measured_across_threads(tmp_path: Path) -> None:
    machine = LocalMachine(tmp_path)
    machine.measure()
    deadline = time.process_time() + 0.1
    while time.process_time() < deadline:
        pass
    # Each heartbeat may measure in another thread.
    with ThreadPoolExecutor(1) as thread:
        assert (thread.submit(machine.measure).result().cpu_percent or 0) > 0


@pytest.mark.req("FE-30")
def test_processor_usage_that_was_never_measured_is_unknown(tmp_path: Path) -> None:
    assert LocalMachine(tmp_path).measure().cpu_percent is None


class Machine(NamedTuple):
    """The memory of a machine."""

    total: int = 16_000
    percent: float = 90.0


@pytest.mark.req("FE-30")
def test_memory_usage_is_that_of_the_container_if_it_has_a_limit() -> None:
    files = {
        "/sys/fs/cgroup/memory.max": "4000\n",
        "/sys/fs/cgroup/memory.current": "3000\n",
        "/sys/fs/cgroup/memory.stat": "anon 1000\ninactive_file 2000\nactive_file 0\n",
    }
    assert memory_percent(Machine(), files.get) == 25.0
    assert memory_percent(Machine(), {**files, "/sys/fs/cgroup/memory.max": "max\n"}.get) == 90.0
    assert memory_percent(Machine(), {}.get) == 90.0
