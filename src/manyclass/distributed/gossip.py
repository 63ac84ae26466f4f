"""Failure detection by heartbeats: counters that the ranks pass on to each other.

Every rank increments its own counter at each heartbeat and sends all counters that it knows to other ranks, which keep
the larger of each (van Renesse, Minsky and Hayden 1998, "A gossip-style failure detection service"). In a small job it
sends them to all ranks; in a large one to the ranks 1, 2, 4, 8, ... after it, so that the counters reach every rank in
log2(size) rounds. A rank whose counter does not change for too long is lost: killed, suspended or disconnected. A long
computation does not stop the heartbeats.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Gossip"]

#: Up to this number of ranks, each sends to all: the others still reach each other whichever ranks are lost.
_SMALL = 32

#: The counter of a rank that has left the job properly.
_GONE = np.iinfo(np.int64).max


class Gossip:
    """The counters of all ranks that one rank knows.

    Parameters
    ----------
    rank, size : int
        This rank, and the number of ranks.
    tick : float
        Seconds between two heartbeats.
    """

    def __init__(self, rank: int, size: int, tick: float) -> None:
        self.rank = rank
        self.tick = tick
        #: A row for each rank: its counter, epoch, step, and `manyclass.distributed.activity.Activity.sample`.
        self.known = np.zeros((size, 4), np.int64)
        self._heard = np.zeros(size)
        self._worked = np.zeros(size)
        self._clock = 0.0
        reaches = [reach for reach in range(1, size) if size <= _SMALL or reach & (reach - 1) == 0]
        self.sends_to = [(rank + reach) % size for reach in reaches]
        self.hears_from = [(rank - reach) % size for reach in reaches]

    def beat(self, where: tuple[int, int], elapsed: float, activity: int = 0) -> NDArray[np.int64]:
        """Count a heartbeat, ``elapsed`` seconds after the last one; returns a copy of the rows, to be sent."""
        # Time advances by at most two ticks: a rank that was suspended itself must not conclude that others are lost.
        self._clock += min(elapsed, 2 * self.tick)
        if self.known[self.rank, 0] != _GONE:
            if activity // 2 != self.known[self.rank, 3] // 2:
                self._worked[self.rank] = self._clock
            self.known[self.rank] = self.known[self.rank, 0] + 1, *where, activity
        return self.known.copy()

    def leave(self) -> None:
        """Announce with the next heartbeats that this rank leaves the job."""
        self.known[self.rank, 0] = _GONE

    def hear(self, rows: NDArray[np.int64]) -> None:
        """Update the known rows with those that are newer."""
        newer = rows[:, 0] > self.known[:, 0]
        newer[self.rank] = False
        self._worked[newer & (rows[:, 3] // 2 != self.known[:, 3] // 2)] = self._clock
        self.known[newer] = rows[newer]
        self._heard[newer] = self._clock

    def is_last(self, source: int, rows: NDArray[np.int64]) -> bool:
        """Whether the sender of these rows announces that it leaves."""
        return bool(rows[source, 0] == _GONE)

    def stuck(self, seconds: float) -> list[tuple[int, float]] | None:
        """If no rank has worked for ``seconds``: the ranks that do not wait for another one, and for how long.

        None if one works, or has left the job.
        """
        if self._clock - float(self._worked.max()) <= seconds or (self.known[:, 0] == _GONE).any():
            return None
        return [(int(r), float(self._clock - self._worked[r])) for r in np.flatnonzero(self.known[:, 3] % 2 == 0)]

    def silent(self, seconds: float) -> list[tuple[int, float]]:
        """The ranks whose counters have not changed for at least ``seconds``, and for how long."""
        age = self._clock - self._heard
        age[self.rank] = 0.0
        age[self.known[:, 0] == _GONE] = 0.0
        return [(int(r), float(age[r])) for r in np.flatnonzero(age > seconds)]
