"""Which ranks are alive, and where they are: counters that ranks pass on to each other.

Every rank counts its own beats and now and then sends all counters that it knows to others, who keep the larger of
each (van Renesse, Minsky and Hayden 1998, "A gossip-style failure detection service"). In a small job it sends them to
all; in a large one to the ranks 1, 2, 4, 8... after it, so that every rank hears of every other in log2(size) rounds. A
rank whose counter has stood still for too long is lost: killed, frozen or cut off. One that computes for long still
beats.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Gossip"]

#: Up to so many ranks, each sends to all: whichever are lost, the others still hear of one another.
_SMALL = 32

#: The counter of a rank that has said goodbye.
_GONE = np.iinfo(np.int64).max


class Gossip:
    """What one rank knows of all.

    Parameters
    ----------
    rank, size : int
        This rank, and the number of ranks.
    tick : float
        Seconds between two beats.
    """

    def __init__(self, rank: int, size: int, tick: float) -> None:
        self.rank = rank
        self.tick = tick
        #: Row of each rank: its counter, epoch and step.
        self.known = np.zeros((size, 3), np.int64)
        self._heard = np.zeros(size)
        self._clock = 0.0
        reaches = [reach for reach in range(1, size) if size <= _SMALL or reach & (reach - 1) == 0]
        self.sends_to = [(rank + reach) % size for reach in reaches]
        self.hears_from = [(rank - reach) % size for reach in reaches]

    def beat(self, where: tuple[int, int], elapsed: float) -> NDArray[np.int64]:
        """Count a beat, ``elapsed`` seconds after the last one; returns the rows to send, a copy."""
        # A rank that was itself stopped for a while must not take the others for dead: time counts by its own beats.
        self._clock += min(elapsed, 2 * self.tick)
        if self.known[self.rank, 0] != _GONE:
            self.known[self.rank] = self.known[self.rank, 0] + 1, *where
        return self.known.copy()

    def leave(self) -> None:
        """Say goodbye with the beats from now on."""
        self.known[self.rank, 0] = _GONE

    def hear(self, rows: NDArray[np.int64]) -> None:
        """Keep what is newer."""
        newer = rows[:, 0] > self.known[:, 0]
        newer[self.rank] = False
        self.known[newer] = rows[newer]
        self._heard[newer] = self._clock

    def is_last(self, source: int, rows: NDArray[np.int64]) -> bool:
        """Whether with these rows their sender says goodbye."""
        return bool(rows[source, 0] == _GONE)

    def silent(self, seconds: float) -> list[tuple[int, float]]:
        """The ranks of which nothing new has come for so long, and for how long it is."""
        age = self._clock - self._heard
        age[self.rank] = 0.0
        age[self.known[:, 0] == _GONE] = 0.0
        return [(int(r), float(age[r])) for r in np.flatnonzero(age > seconds)]
