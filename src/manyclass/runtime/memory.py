"""Memory checks: how many bytes a fit needs and how many are available."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["address_space", "available", "human", "require"]


def human(n: float) -> str:
    """Return a number of bytes as a string with a binary unit.

    Examples
    --------
    >>> human(3 * 2**30)
    '3.0 GiB'
    """
    for unit in ("bytes", "KiB", "MiB"):
        if abs(n) < 1024:
            return f"{n:.0f} {unit}" if unit == "bytes" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} GiB"


def available() -> int | None:
    """Return the bytes that this process can still allocate without swapping; None if they are not known.

    They are the minimum of free memory and what the limits of the control group and of the address space leave.
    """
    found: list[int] = []
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024)
    except OSError:
        try:
            found.append(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        except (AttributeError, ValueError, OSError):
            pass
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            used = int(Path("/sys/fs/cgroup/memory.current").read_text())
            cache = [
                int(line.split()[1])
                for line in Path("/sys/fs/cgroup/memory.stat").read_text().splitlines()
                if line.startswith("inactive_file ")
            ]
            found.append(max(0, int(limit) - used + sum(cache)))
    except (OSError, ValueError):
        pass
    space = address_space()
    if space is not None:
        found.append(space)
    return min(found) if found else None


def address_space() -> int | None:
    """Return the bytes of address space that this process can still use, mapped files included; None if not limited."""
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_AS)
        if soft == resource.RLIM_INFINITY:
            return None
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return int(max(0, soft - pages * os.sysconf("SC_PAGE_SIZE")))
    except (ImportError, OSError, ValueError):
        return None


def require(needs: Mapping[str, int], remedy: str) -> None:
    """Raise a MemoryError if more bytes are needed than are available; called before they are allocated.

    Parameters
    ----------
    needs : mapping of str to int
        Purpose -> bytes needed.
    remedy : str
        The end of the message: what the user can do.
    """
    total = sum(needs.values())
    there = available()
    if there is not None and total > there:
        parts = ", ".join(f"{name} {human(size)}" for name, size in needs.items())
        raise MemoryError(
            f"this fit needs {human(total)} besides the data ({parts}), and {human(there)} are available; "
            f"to make it fit: {remedy}"
        )
