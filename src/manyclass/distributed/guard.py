"""A monitor process for each rank: it reports a killed rank, kills one that hangs or is suspended, removes its files.

`Guard` is used by the rank. The monitor is this file, run as a program with the standard library only; it reads lines
from a pipe. ``mpiexec`` kills all ranks at once when it loses one, before any of them can print a message. The monitor
runs in its own session, detects that the pipe was closed, and reports the rank, its host, epoch, step and the time.

An MPI library may itself crash when it sends to a process that was killed. ``mpiexec`` then stops at whichever of the
two it notices first, and drops the messages of the other hosts. It notices the end of a rank only after the monitor has
closed its standard error: the monitor waits for `_OTHERS` seconds with that, so that every message arrives; their times
say which process was the first.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time

__all__ = ["Guard"]

#: Seconds for which standard error is kept open after a rank was killed, for the monitors of the other hosts.
_OTHERS = 0.5


class Guard:
    """The rank's interface to its monitor process.

    Parameters
    ----------
    rank, size : int
        The rank, and the number of ranks.
    host : str
        Name of the machine.
    job : str
        A unique name of the job, the same on all its ranks.
    silence : float, optional
        Seconds without a call of `beat` after which the rank is killed if it alone is suspended (on Linux): the
        others have given it up. None: never.
    """

    def __init__(self, rank: int, size: int, host: str, job: str, silence: float | None = None) -> None:
        self._lock = threading.Lock()
        facts = [str(rank), str(size), host, job, str(os.getpid()), str(silence or 0.0)]
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, *facts],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def at(self, epoch: int, step: int) -> None:
        """Set the epoch and step of the rank, for messages."""
        self._say(f"at {epoch} {step}")

    def beat(self) -> None:
        """Give a sign of life."""
        self._say("beat")

    def end(self, seconds: float) -> None:
        """Announce that the rank ends by itself; the monitor kills it if it still runs after ``seconds``."""
        self._say(f"end {seconds:g}")

    def remove(self, path: str) -> None:
        """Register a file to be removed if the rank ends without calling `release`."""
        self._say(f"file {path}")

    def release(self) -> None:
        """Announce that the rank has finished; the monitor ends."""
        self._say("bye")
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            try:
                process.stdin.close()
                process.wait(5)
            except (OSError, subprocess.TimeoutExpired):  # it ends when this process does
                pass

    def _say(self, line: str) -> None:
        with self._lock:
            if self._process is None or self._process.stdin is None:
                return
            try:
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()
            except OSError:  # the monitor was killed: the job can continue without it
                pass


def _first_on_this_host(job: str) -> socket.socket | None:
    """A lock for this job that one process of this host can hold, released when that process ends; None if taken."""
    if not sys.platform.startswith("linux"):
        return socket.socket()
    mine = socket.socket(socket.AF_UNIX)
    try:
        mine.bind(f"\0manyclass-{job}")
    except OSError:
        return None
    return mine


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
    except OSError:  # it has ended
        pass


def _state(pid: str) -> tuple[str, str]:
    """State of a process, "T" if it is suspended, and its parent; empty where they are not known."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):  # it has ended, or this is not Linux
        return "", ""
    return state, parent


class _Watch:
    """Kills the rank if it gives no sign of life because it alone is suspended.

    Where its parent is suspended as well, the user has suspended the whole job, which can go on.
    """

    def __init__(self, pid: str, silence: float) -> None:
        self.pid, self.silence, self.age, self.killed = pid, silence, 0.0, False
        if silence > 0:
            threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(0.25)
            now = time.monotonic()
            # At most twice the pause: if this process was suspended as well, the rank must have time to go on.
            self.age, last = self.age + min(now - last, 0.5), now
            if self.age > self.silence:
                state, parent = _state(self.pid)
                if state == "T" and _state(parent)[0] not in ("T", ""):
                    self.killed = True
                    _kill(int(self.pid))
                    return


def _main(rank: str, size: str, host: str, job: str, pid: str, silence: str = "0") -> None:
    where, files, held, ended = ("0", "0"), [], None, False
    watch = _Watch(pid, float(silence))
    for line in sys.stdin:
        word, rest = line.split()[0], line.split()[1:]
        if word == "beat":
            watch.age = 0.0
        elif word == "at":
            where = rest[0], rest[1]
        elif word == "file":
            files.append(rest[0])
        elif word == "bye":
            return
        elif word == "end" and not ended:
            held, ended = _first_on_this_host(job), True
            killer = threading.Timer(float(rest[0]), _kill, [int(pid)])
            killer.daemon = True
            killer.start()
    # The pipe was closed: the rank has ended.
    now = time.time()
    for path in files:
        try:
            os.unlink(path)
        except OSError:  # the monitor of another rank removed it first
            pass
    if not ended:
        held = _first_on_this_host(job)
        if held is not None:
            sys.stderr.write(
                f"manyclass: error: rank {rank} of {size} on {host} (epoch {where[0]}, step {where[1]}), "
                f"process {pid}, was {'suspended, and then ' * watch.killed}killed; it was the first to end on this "
                f"host, at "
                f"{time.strftime('%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d} UTC\n"
            )
            sys.stderr.flush()
            time.sleep(_OTHERS)
    if held is not None:
        os.close(2)  # mpiexec waits until standard error is closed
        time.sleep(2.0)  # hold the lock: the monitors of ranks that are killed next must not report
        held.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
