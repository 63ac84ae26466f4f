"""A small process beside each rank that outlives it: it says what a killed rank cannot, ends one that hangs, tidies up.

`Guard` is the rank's end. The other end is this file, run as a program: it reads lines from the rank, and needs nothing
but Python itself. ``mpiexec`` kills all ranks at once when it loses one, before any of them could say a word; the guard
is in a session of its own, sees the pipe close, and names the rank, where it was, and when.
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


class Guard:
    """The rank's end of the pipe.

    Parameters
    ----------
    rank, size : int
        The rank, and the number of ranks.
    host : str
        The machine.
    job : str
        A name that the ranks of a job share, and no other job has.
    """

    def __init__(self, rank: int, size: int, host: str, job: str) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(rank), str(size), host, job, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def at(self, epoch: int, step: int) -> None:
        """Where the rank is."""
        self._say(f"at {epoch} {step}")

    def end(self, seconds: float) -> None:
        """The rank has given up and said why; kill it if it is still there after so long."""
        self._say(f"end {seconds:g}")

    def remove(self, path: str) -> None:
        """A file to remove when the rank has ended otherwise than by `release`."""
        self._say(f"file {path}")

    def release(self) -> None:
        """The rank is done."""
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
            except OSError:  # somebody has ended the guard: the job can do without
                pass


def _first_on_this_host(job: str) -> socket.socket | None:
    """Something that one process of this host can have, and that is gone with it."""
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


def _main(rank: str, size: str, host: str, job: str, pid: str) -> None:
    where, files, held, ended = ("0", "0"), [], None, False
    for line in sys.stdin:
        word, rest = line.split()[0], line.split()[1:]
        if word == "at":
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
    # The pipe has closed: the rank is gone.
    for path in files:
        try:
            os.unlink(path)
        except OSError:  # another rank's guard was faster
            pass
    if not ended:
        held = _first_on_this_host(job)
        if held is not None:
            sys.stderr.write(
                f"manyclass: error: rank {rank} of {size} on {host} (epoch {where[0]}, step {where[1]}), "
                f"process {pid}, was killed from outside; it was the first on this host\n"
            )
            sys.stderr.flush()
    if held is not None:
        os.close(2)  # or mpiexec would wait for it
        time.sleep(2.0)  # the others of this host, killed after it, are to stay silent
        held.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
