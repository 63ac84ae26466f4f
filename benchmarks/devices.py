"""Rows as PyTorch's tensors on a device, and what that device can do."""

from __future__ import annotations

import platform
import time
from importlib.util import find_spec
from statistics import median
from typing import Any

from benchmarks.data import Data
from benchmarks.task import Task

__all__ = ["device_facts", "device_of", "matrix_peak", "moved", "no_torch", "settled"]

#: Rows of the products by which a device is measured, and how often.
_ROWS, _TIMES = 1 << 14, 5


def no_torch() -> str | None:
    """Why a method that needs PyTorch is skipped."""
    return None if find_spec("torch") else "the package is not installed: pip install torch"


def device_of(task: Task) -> str:
    """The device that the option "device" of a task names; the processor by default."""
    return str(dict(task.options).get("device", "cpu"))


def moved(data: Data, device: str) -> tuple[Any, Any]:
    """Rows and classes of the fit on the device."""
    import torch

    X, y = torch.from_numpy(data.X).to(device), torch.from_numpy(data.y).to(device, torch.int64)
    settled(device)
    return X, y


def settled(device: str) -> None:
    """Wait until the device has done what it was asked."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def device_facts(device: str) -> dict[str, Any]:
    """What a row tells of the device."""
    import torch

    cuda = device.startswith("cuda")
    return {
        "device": torch.cuda.get_device_name(device) if cuda else platform.machine(),
        "torch": torch.__version__,
        "tf32": bool(cuda and torch.backends.cuda.matmul.allow_tf32),
    }


def matrix_peak(X: Any, K: int) -> float:
    """Floating-point operations per second of products of some rows of X with weights of K columns."""
    import torch

    part = X[:_ROWS].clone()
    W = torch.ones((X.shape[1], K), dtype=X.dtype, device=X.device)
    seconds = []
    for _ in range(_TIMES + 1):
        settled(str(X.device))
        begun = time.perf_counter()
        part @ W
        settled(str(X.device))
        seconds.append(time.perf_counter() - begun)
    return 2.0 * part.shape[0] * X.shape[1] * K / median(seconds[1:])
