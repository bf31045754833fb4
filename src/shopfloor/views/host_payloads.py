"""The payloads of the `worker.*` and `provider.*` fleet events. Names are those of the wire.

On the wire a host, which executes runs, is called a worker.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from shopfloor.views.agent_payloads import AccessMode, LimitedAccessMode

HostStatus = Literal["starting", "idle", "busy", "draining", "offline"]


class LocationFields(TypedDict):
    """Where a host is: its `type`, with the fields of that type."""

    type: Literal["kubernetes", "docker", "ec2", "local"]
    """The kind of machine."""
    namespace: NotRequired[str | None]
    """The namespace of a pod of Kubernetes; null if it is not known."""
    pod: NotRequired[str | None]
    """The name of a pod of Kubernetes; null if it is not known."""
    container: NotRequired[str | None]
    """The id of a container of Docker; null if it is not known."""
    instanceId: NotRequired[str | None]
    """The id of an instance of EC2; null if it is not known."""
    region: NotRequired[str | None]
    """The region of an instance of EC2; null if it is not known."""


class ResourceFields(TypedDict):
    """The resources of a host's machine."""

    cpuCores: int
    """The number of processors that the host may use."""
    memoryMB: int
    """Memory in megabytes."""
    diskGB: int
    """The size of the disk with the storage, in gigabytes."""
    gpuCount: NotRequired[int]
    """The number of graphics processors."""


class HostInfo(TypedDict):
    """What a host reports about itself."""

    hostname: str
    """The name of its machine."""
    type: Literal["local", "remote", "cloud"]
    """Where it is, seen from the server."""
    version: str
    """Its version of Shopfloor."""
    location: LocationFields
    """Where it is."""
    capabilities: list[str]
    """The providers that it can run."""
    resources: ResourceFields
    """The resources of its machine."""
    labels: NotRequired[dict[str, str]]
    """The labels that it was started with."""
    slots: NotRequired[int]
    """How many runs it executes at once."""


class CurrentTask(TypedDict):
    """A run that a host executes."""

    taskId: str
    """The run."""
    progress: float | None
    """The part that is done, from 0 to 1; null if it is not known."""
    startedAt: str
    """When the host started it."""


class HostMetrics(TypedDict):
    """How busy a host's machine is."""

    cpuUsage: float | None
    """Percent of all processors, since the last heartbeat; null if it was not measured."""
    memoryUsage: float
    """Percent of the memory that the host may use."""
    diskUsage: float
    """Percent."""
    uptime: float
    """Seconds since the host started."""


class AssignedTask(TypedDict):
    """What a host is to do."""

    prompt: str
    """The task of the run, truncated."""
    taskType: str
    """The slug of its worker."""
    priority: int | None
    """The priority of the run; null if it has none."""


class TaskResult(TypedDict):
    """The result of a run."""

    success: bool
    """True if the run completed."""
    duration: int | None
    """Milliseconds."""
    tokensUsed: int | None
    """Tokens read and written."""
    cost: float | None
    """US dollars, of the run and its sub-runs; null unless all of their tokens have a price."""


class NextTask(TypedDict):
    """The run that the host takes next."""

    taskId: str
    """The run."""
    queuePosition: int
    """Its position among the runs that this host takes next, from 1."""


class OrphanedTask(TypedDict):
    """A run that a lost host left behind."""

    taskId: str
    """The run."""
    reassigned: bool
    """True if another host took it over."""
    newWorkerId: NotRequired[str]
    """That host."""


class ScalingHosts(TypedDict):
    """The hosts that a change of scale affects."""

    starting: NotRequired[list[str]]
    """Hosts that are being started."""
    terminating: NotRequired[list[str]]
    """Hosts that are being terminated."""


class WorkerRegistered(TypedDict):
    """A host joined."""

    workerId: str
    """The host."""
    info: HostInfo
    """What it reports about itself."""


class WorkerHeartbeat(TypedDict):
    """A host is alive. Heartbeats are sent live and are not stored."""

    workerId: str
    """The host."""
    status: Literal["idle", "busy", "draining"]
    """What it does."""
    currentTask: NotRequired[CurrentTask]
    """The run that it has executed for longest."""
    currentTasks: NotRequired[list[CurrentTask]]
    """The runs that it executes, the oldest first; the beginning of the list if they are very many."""
    currentTasksTotal: NotRequired[int]
    """The number of all runs that it executes."""
    metrics: HostMetrics
    """How busy its machine is."""


class WorkerStatusChanged(TypedDict):
    """The status of a host changed."""

    workerId: str
    """The host."""
    previous: HostStatus
    """The status before."""
    current: HostStatus
    """The status now."""
    reason: NotRequired[str]
    """Why it changed."""
    taskId: NotRequired[str]
    """The run that it changed for."""


class WorkerTaskAssigned(TypedDict):
    """A host took a run."""

    workerId: str
    """The host."""
    taskId: str
    """The run."""
    providerId: str | None
    """The provider that powers the run; null if it uses none, or several."""
    task: AssignedTask
    """What the host is to do."""
    estimatedDuration: NotRequired[float]
    """Seconds: the median of the worker's last runs."""


class WorkerTaskCompleted(TypedDict):
    """A host has ended a run."""

    workerId: str
    """The host."""
    taskId: str
    """The run."""
    result: TaskResult
    """The result of the run."""
    nextTask: NotRequired[NextTask]
    """The first queued run that this host can execute; another host may take it. Omitted by a host that drains."""


class WorkerOffline(TypedDict):
    """A host went away."""

    workerId: str
    """The host."""
    hostname: str
    """The name of its machine."""
    reason: Literal["shutdown", "timeout", "error"]
    """Why it went: it was stopped, it had missed three heartbeats when it was found gone, or it ended unexpectedly."""
    lastHeartbeat: str | None
    """When it was last heard of; null if it never sent a heartbeat."""
    orphanedTask: NotRequired[OrphanedTask]
    """The run that it left behind; the first one if there are several."""
    orphanedTasks: NotRequired[list[OrphanedTask]]
    """The runs that it left behind; the beginning of the list if they are very many."""
    orphanedTasksTotal: NotRequired[int]
    """The number of all runs that it left behind."""


class WorkerScaling(TypedDict):
    """The number of hosts changes."""

    action: Literal["scale_up", "scale_down"]
    """The direction."""
    current: int
    """The number of hosts now."""
    target: int
    """The number of hosts that there will be."""
    reason: str
    """Why the number changes, such as `queue_length > 50`."""
    workers: ScalingHosts
    """The hosts that it affects."""


# Providers.


class PreviousProvider(TypedDict):
    """The provider that a run leaves."""

    providerId: str
    """The provider."""
    reason: Literal["rate_limited", "error", "unavailable"]
    """Why the run leaves it."""


class NextProvider(TypedDict):
    """The provider that takes a run over."""

    providerId: str
    """The provider."""
    accessMode: LimitedAccessMode
    """How it is paid for."""


class FallbackImpact(TypedDict):
    """What a fallback changes."""

    costIncrease: NotRequired[float]
    """The difference in US dollars."""
    capabilityChange: NotRequired[list[str]]
    """The capabilities that differ."""


class ProviderAvailable(TypedDict):
    """A provider can be used again."""

    providerId: str
    """The provider."""
    name: str
    """Its name for people."""
    previousStatus: Literal["unavailable", "rate_limited", "disabled"]
    """Why it could not be used before."""
    accessMode: AccessMode | None
    """How it is paid for."""


class ProviderUnavailable(TypedDict):
    """A provider cannot be used."""

    providerId: str
    """The provider."""
    name: str
    """Its name for people."""
    reason: Literal["rate_limited", "error", "maintenance", "disabled"]
    """Why it cannot be used."""
    error: NotRequired[str]
    """The error, if there was one."""
    estimatedRecovery: NotRequired[str]
    """When it is expected to be available again."""
    fallbackProvider: NotRequired[str]
    """The provider that is used instead."""


_Fallback = TypedDict("_Fallback", {"from": PreviousProvider})


class ProviderFallback(_Fallback):
    """A run continues with another provider."""

    taskId: str
    """The run."""
    to: NextProvider
    """The provider that takes over."""
    impact: FallbackImpact
    """What changes."""
