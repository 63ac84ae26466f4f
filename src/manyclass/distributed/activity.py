"""Whether this process works, waits for others, or does neither: the last is how a stuck process is found."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["Activity"]

#: Fraction of the time between two heartbeats that a working process computes, at least.
_BUSY = 0.2


class Activity:
    """Counts signs of work: calls of the communicator other than in waits, processor time, transfers from and to disks.

    Time in which threads were ready to run, while others had the processors, counts as processor time (on Linux): on an
    overloaded machine a process that computes gets little of it.

    Attributes
    ----------
    count : int
        Number of signs so far.
    waiting : bool
        Whether the process waits for a message.
    """

    def __init__(self) -> None:
        self.count = 0
        self.waiting = False
        self._processor, self._disk, self._delayed = time.process_time(), _transferred(), _delayed()

    def sample(self, elapsed: float) -> int:
        """Look for signs since the last call, ``elapsed`` seconds ago; returns the count, odd while the process waits.

        Polling for a message takes processor time, too: while the process waits, none of this counts.
        """
        processor, disk, delayed = time.process_time(), _transferred(), _delayed()
        ready = sum(seconds - self._delayed.get(thread, 0.0) for thread, seconds in delayed.items())
        works = processor - self._processor + ready > _BUSY * elapsed or disk != self._disk
        if works and not self.waiting:
            self.count += 1
        self._processor, self._disk, self._delayed = processor, disk, delayed
        return 2 * self.count + self.waiting


def _transferred() -> str:
    """The lines on bytes read from and written to disks; empty if they are not known."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return ""
    return " ".join(line for line in lines if line.startswith(("read_bytes", "write_bytes")))


def _delayed() -> dict[str, float]:
    """Seconds that each thread but this one has waited for a processor; none if they are not known."""
    mine, found = str(threading.get_native_id()), {}
    with suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            if thread != mine:
                with suppress(OSError, ValueError, IndexError):  # the thread has ended
                    found[thread] = int(Path(f"/proc/self/task/{thread}/schedstat").read_text().split()[1]) / 1e9
    return found
