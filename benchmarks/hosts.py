"""Several hosts on one machine: network namespaces joined by a bridge, each with a name, an address and real TCP.

For correctness and faults, not for times: the hosts share the cores of the machine. Needs Linux, root and ``ip``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["Hosts", "missing"]

# Stands in for ssh: mpiexec calls it as  SCRIPT [options] ADDRESS COMMAND...
_AGENT = """\
#!/bin/sh
while :; do case "$1" in -o|-p|-l|-i) shift 2;; -*) shift;; *) break;; esac; done
number=${1##*.}
shift
exec ip netns exec "PREFIX$number" unshare --uts sh -c "hostname PREFIX$number && $*"
"""


def missing() -> str | None:
    """Why there can be no hosts here, or None."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "unshare"):
        if shutil.which(program) is None:
            return f"no program {program!r}"
    name = f"mcprobe{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "network namespaces cannot be made here"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


class Hosts:
    """``with Hosts(3) as hosts``: hosts 1, 2 and 3, taken away at the end with every process in them."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.prefix = f"mc{os.getpid()}h"
        self._switch = f"mc{os.getpid()}s"
        self.folder = Path(tempfile.mkdtemp(prefix="manyclass-hosts-"))
        self.agent = self.folder / "agent.sh"

    def __enter__(self) -> Hosts:
        self.agent.write_text(_AGENT.replace("PREFIX", self.prefix))
        self.agent.chmod(0o700)
        try:
            _ip("netns", "add", self._switch)
            _ip("-n", self._switch, "link", "add", "br0", "type", "bridge")
            _ip("-n", self._switch, "link", "set", "br0", "up")
            for i in self.numbers():
                _ip("netns", "add", self.name(i))
                end = ["type", "veth", "peer", "name", f"p{i}", "netns", self._switch]
                _ip("-n", self.name(i), "link", "add", "eth0", *end)
                _ip("-n", self._switch, "link", "set", f"p{i}", "master", "br0", "up")
                _ip("-n", self.name(i), "link", "set", "lo", "up")
                _ip("-n", self.name(i), "addr", "add", f"{self.address(i)}/24", "dev", "eth0")
                _ip("-n", self.name(i), "link", "set", "eth0", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def numbers(self) -> range:
        """The hosts."""
        return range(1, self.count + 1)

    def name(self, i: int) -> str:
        """Name of a host, and of its namespace."""
        return f"{self.prefix}{i}"

    def address(self, i: int) -> str:
        """Its address."""
        return f"10.77.0.{i}"

    def cut(self, i: int) -> None:
        """Take the cable out: nothing is refused, nothing answers."""
        _ip("-n", self._switch, "link", "set", f"p{i}", "down")

    def bytes_sent(self, i: int) -> int:
        """What has left a host through its interface since it was made."""
        text = _ip("netns", "exec", self.name(i), "cat", "/sys/class/net/eth0/statistics/tx_bytes")
        return int(text)

    def processes(self) -> dict[int, str]:
        """Number and command line of every process in the hosts."""
        found = {}
        for i in self.numbers():
            for pid in _ip("netns", "pids", self.name(i)).split():
                try:
                    found[int(pid)] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                except OSError:  # has ended meanwhile
                    continue
        return found

    def ranks(self) -> dict[int, int]:
        """Rank -> process, of the job that runs in the hosts."""
        found = {}
        for pid, command in self.processes().items():
            if command.startswith(sys.executable) and "guard.py" not in command and "mpiexec" not in command:
                told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                ranks = [entry for entry in told if entry.startswith((b"PMI_RANK=", b"RANK="))]
                found.update({int(entry.split(b"=")[1]): pid for entry in ranks})
        return found

    def start(self, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        """Start a process of Python on each host, one rank each, described as a group of `torch.distributed`."""
        place = {"MASTER_ADDR": self.address(1), "MASTER_PORT": "29517", "WORLD_SIZE": str(self.count)}
        lines = [
            " ".join([str(self.agent), self.address(i), "env", f"RANK={i - 1}", sys.executable, *arguments, "&"])
            + ' pids="$pids $!"'
            for i in self.numbers()
        ]
        script = "\n".join([*lines, "status=0", "for pid in $pids; do wait $pid || status=1; done", "exit $status"])
        return subprocess.Popen(
            ["sh", "-c", script],
            env={**os.environ, **environment, **place, "GLOO_SOCKET_IFNAME": "eth0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def launch(self, mpiexec: str, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        """Start ``mpiexec`` on host 1, one rank a host in turn, all data over TCP."""
        hosts = ",".join(map(self.address, self.numbers()))
        # Shared memory would take UCX, libfabric and MPICH past the network; and a killed job leaves files of it.
        tcp = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
        tcp["MPIR_CVAR_NOLOCAL"] = "1"
        enter = [str(self.agent), self.address(1), mpiexec, "-launcher", "ssh", "-launcher-exec", str(self.agent)]
        return subprocess.Popen(
            [*enter, "-iface", "eth0", "-hosts", hosts, *arguments],
            env={**os.environ, **environment, **tcp},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End what is left in the hosts, and take them away."""
        for name in [*map(self.name, self.numbers()), self._switch]:
            pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
            for pid in pids:
                subprocess.run(["kill", "-KILL", pid], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
