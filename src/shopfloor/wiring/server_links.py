"""Where a server is reached: from this machine only or from others too, and at which URL by them."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

_WILDCARDS: Final = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - recognized, not listened on


def is_shared(host: str) -> bool:
    """Return whether a server that listens on this address or name is reached by other machines."""
    if host in _WILDCARDS:
        return True
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return True
    return not all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def public_url(host: str, url: str, allowed_hosts: tuple[str, ...] = ()) -> str | None:
    """Return the URL for other machines, unless that is `url`: with an allowed host name, or an address.

    None if no other machine reaches the server, or nothing is known but that it listens on all interfaces.
    """
    if not is_shared(host):
        return None
    port = urlsplit(url).port
    if allowed_hosts:
        name = allowed_hosts[0]
        return f"http://{name}" if urlsplit(f"//{name}").port else f"http://{name}:{port}"
    if host not in _WILDCARDS:
        return None
    family, elsewhere = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Connecting sends nothing: it only chooses the interface for an address outside.
            probe.connect((elsewhere, 9))
            found = str(probe.getsockname()[0])
    except OSError:
        return None
    return f"http://{f'[{found}]' if ':' in found else found}:{port}"


def accepted_hosts(host: str, allowed_hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the host names that requests may have beside this machine's own: also the name that the server listens on.

    Addresses are not among them: the server accepts the one at which a request arrives.
    """
    try:
        ip_address(host)
    except ValueError:
        return (*allowed_hosts, host) if host else allowed_hosts
    return allowed_hosts
