"""Whether this process works, waits for others, or does neither: the last is how a stuck process is found."""

from __future__ import annotations

import time
from pathlib import Path

__all__ = ["Activity"]

#: Fraction of the time between two heartbeats that a working process computes, at least.
_BUSY = 0.2


class Activity:
    """Counts signs of work: calls of the communicator other than in waits, processor time, transfers from and to disks.

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
        self._processor, self._disk = time.process_time(), _transferred()

    def sample(self, elapsed: float) -> int:
        """Look for signs since the last call, ``elapsed`` seconds ago; returns the count, odd while the process waits.

        Polling for a message takes processor time, too: while the process waits, none of this counts.
        """
        processor, disk = time.process_time(), _transferred()
        works = processor - self._processor > _BUSY * elapsed or disk != self._disk
        if works and not self.waiting:
            self.count += 1
        self._processor, self._disk = processor, disk
        return 2 * self.count + self.waiting


def _transferred() -> str:
    """The lines on bytes read from and written to disks; empty if they are not known."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return ""
    return " ".join(line for line in lines if line.startswith(("read_bytes", "write_bytes")))
