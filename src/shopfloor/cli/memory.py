"""How much freed memory the process keeps for itself."""

from __future__ import annotations

import ctypes

from shopfloor.limits import MALLOC_ARENAS, MALLOC_MMAP_BYTES

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8


def return_freed_memory() -> None:
    """Have glibc give the memory of large values back to the system as soon as they are freed.

    By default glibc raises its threshold to the size of the largest value freed so far, up to 32 MB. From then on
    values of that size lie between others in its arenas, one arena per thread, and hardly any of that memory is ever
    given back. Other C libraries have no `mallopt`; there nothing is changed.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_MMAP_THRESHOLD, MALLOC_MMAP_BYTES)
        libc.mallopt(_M_ARENA_MAX, MALLOC_ARENAS)
