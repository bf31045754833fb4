"""Limits of hosts and of provider checks."""

from typing import Final

# Hosts and providers.
HOST_FIRST_HEARTBEAT_SECONDS: Final = 1.0
"""How soon after its registration a host sends its first heartbeat: processor usage is measured over a time."""
HOST_HEARTBEATS_MISSED: Final = 3
"""After this many missed heartbeats a host is shown as unresponsive; its runs stay with it while it is alive."""
HOST_CPU_HISTORY: Final = 20
"""The number of heartbeats whose processor usage is kept."""
HOST_EVENT_BATCH_SECONDS: Final = 0.02
"""How long the events of a host wait for others to share a transaction."""
HOST_STATUS_SECONDS: Final = 0.5
"""How often a host checks whether it became idle or busy, besides the start and end of its runs."""
HOST_EVENTS_PENDING: Final = 10_000
"""The number of events that a host keeps while they cannot be stored; the oldest are dropped."""
HOST_PROVIDER_SEARCH_SECONDS: Final = 5.0
"""How long a host looks for its providers before it registers without them; the first check finds them later."""
HOST_RUNS_SHOWN: Final = 200
"""The number of open runs that are listed with each host."""
OFFLINE_NOTICE_SECONDS: Final = 30.0
"""How long the event that a host is lost waits until other hosts have taken over its runs."""
OFFLINE_HOSTS_SECONDS: Final = 24 * 60 * 60.0
"""How long a host that is offline is listed."""
OFFLINE_HOSTS_KEPT: Final = 100
"""The number of hosts that are offline and still listed."""
ESTIMATE_RUNS: Final = 20
"""The number of completed runs of a worker whose median duration is the estimate for the next one."""
ESTIMATE_CACHE_SECONDS: Final = 10.0
"""How long such an estimate is reused."""
ESTIMATES_CACHED: Final = 1_000
"""The number of workers whose estimate is cached."""
PROVIDER_POLL_SECONDS: Final = 5.0
"""How often a server looks for changes to providers by other processes."""
PROVIDER_SETTLE_SECONDS: Final = 0.1
"""How long a server collects what runs observe of providers before it decides whether a status changed."""
PROVIDER_LIMIT_SECONDS: Final = 60.0
"""How long a provider counts as rate-limited by a limit that does not say when it resets."""
PROVIDER_FAILURE_SECONDS: Final = 300.0
"""How long a provider counts as unavailable after a run could not reach it. A rejected login counts until it works."""
