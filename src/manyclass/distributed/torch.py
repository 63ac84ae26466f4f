"""Communication between processes by PyTorch (`torch.distributed` with gloo, imported on first use).

What starts workers on clusters of companies (torchrun, Kubernetes, Ray, Spark) describes a process group in the
environment, or has initialized one. gloo's requests never tell that they are complete unless they are waited for, so
each connection has threads that wait (see `streams`).
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manyclass.distributed.communicator import CommunicatorError
from manyclass.distributed.streams import Link, StreamCommunicator
from manyclass.runtime.launchers import TORCH

__all__ = ["INSTALL", "TorchCommunicator", "require_torch"]

INSTALL = (
    "comm='torch' needs PyTorch: install it with\n"
    "    python -m pip install 'manyclass[torch]'\n"
    "    torchrun --nproc-per-node 4 -m manyclass fit ..."
)

_TAG = 1
_EVER = timedelta(days=3650)  # heartbeats and closed connections end a wait, not gloo


def require_torch() -> Any:
    """The module ``torch.distributed``.

    Raises
    ------
    ImportError
        If PyTorch is missing or was built without it; the message says what to install.
    """
    try:
        import torch.distributed as dist

        if not (dist.is_available() and dist.is_gloo_available()):
            raise ImportError("this PyTorch was built without gloo")
    except ImportError as error:
        raise ImportError(f"{INSTALL}\n({type(error).__name__}: {error})") from error
    return dist


class _GlooLink(Link):
    """Messages to and from one rank of a group."""

    breaks = (RuntimeError,)

    def __init__(self, dist: Any, group: Any, peer: int) -> None:
        from torch import from_numpy

        self._dist, self._group, self._peer, self._tensor = dist, group, peer, from_numpy

    def send(self, parts: list[NDArray[np.uint8]]) -> None:
        tensors = [self._tensor(part if part.flags.writeable else part.copy()) for part in parts if part.size]
        for work in [self._dist.isend(tensor, self._peer, group=self._group, tag=_TAG) for tensor in tensors]:
            work.wait(_EVER)

    def receive(self, into: NDArray[np.uint8]) -> None:
        if into.size:
            self._dist.irecv(self._tensor(into), self._peer, group=self._group, tag=_TAG).wait(_EVER)

    def shut(self) -> None:
        """Nothing: gloo ends connections with their group."""


class TorchCommunicator(StreamCommunicator):
    """The communicator of one process of a group of `torch.distributed`.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        The participating processes, each of which must create its communicator; by default the group that is
        initialized, or the one that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT describe. Messages go through a new
        group of the same processes, by gloo, so that they do not mix with the caller's own.
    timeout : float, default=600.0
        Maximum duration of a wait for another rank in seconds, > 0.
    silence : float, default=8.0
        Seconds without a heartbeat after which a rank counts as lost, > 0.
    guard : bool, default=True
        Whether to start the monitor process that reports this process if it is killed.
    stall : float, optional
        Seconds after which a wait ends if no process has worked in them, which finds processes that are stuck but send
        heartbeats; > 0. None: waits end after ``timeout`` only.

    Raises
    ------
    ImportError
        If PyTorch is missing.
    CommunicatorError
        If no group is initialized and the environment describes none, or not all processes can be connected.
    """

    def __init__(
        self,
        group: Any = None,
        timeout: float = 600.0,
        silence: float = 8.0,
        guard: bool = True,
        stall: float | None = None,
    ) -> None:
        dist = require_torch()
        self._own = not dist.is_initialized()
        waits = timedelta(seconds=min(timeout, 600.0))
        if self._own:
            missing = [name for name in TORCH if not os.environ.get(name)]
            if missing:
                raise CommunicatorError(
                    f"comm='torch': no process group is initialized, and the environment lacks {', '.join(missing)}: "
                    "start the processes with torchrun, or call torch.distributed.init_process_group('gloo') first"
                )
            try:
                dist.init_process_group("gloo", timeout=waits)
            except (RuntimeError, ValueError) as error:
                raise CommunicatorError(_unconnected(error)) from error
        rank = dist.get_rank(group)
        if rank < 0:
            raise CommunicatorError("comm='torch': this process is not in the group: give one that it belongs to")
        super().__init__(rank, dist.get_world_size(group), timeout, silence, stall)
        members = dist.get_process_group_ranks(dist.group.WORLD if group is None else group)
        try:
            self._group = dist.new_group(members, backend="gloo", timeout=waits, use_local_synchronization=True)
        except RuntimeError as error:
            raise CommunicatorError(_unconnected(error)) from error
        self._dist = dist
        peers = {r: member for r, member in enumerate(members) if r != self.rank}
        self._connect({r: _GlooLink(dist, self._group, member) for r, member in peers.items()}, guard)

    def _free(self) -> None:
        self._dist.destroy_process_group(self._group)
        if self._own:
            self._dist.destroy_process_group()

    def _quit(self) -> None: ...


def _unconnected(error: BaseException) -> str:
    where = ", ".join(f"{name}={os.environ.get(name, '')}" for name in TORCH)
    return (
        f"comm='torch': the processes could not be connected ({where}): {' '.join(str(error).split())}: check that all "
        "of them run, and that GLOO_SOCKET_IFNAME names the network interface by which the hosts see each other"
    )
