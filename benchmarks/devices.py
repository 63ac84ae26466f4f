"""PyTorch's devices: what they are, and what they can do."""

from __future__ import annotations

import platform
import time
from importlib.util import find_spec
from statistics import median
from typing import Any

__all__ = ["device_facts", "matrix_peak", "memory_peak", "no_torch", "settled"]

#: Rows of the products by which a device is measured, and how often.
_ROWS, _TIMES = 1 << 15, 5


def no_torch() -> str | None:
    """Why a method that needs PyTorch is skipped."""
    return None if find_spec("torch") else "the package is not installed: pip install torch"


def settled(device: str) -> None:
    """Wait until the device has done what it was asked."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def device_facts(device: str) -> dict[str, Any]:
    """What a row tells of the device."""
    import torch

    cuda = device.startswith("cuda")
    return {"device": torch.cuda.get_device_name(device) if cuda else platform.machine(), "torch": torch.__version__}


def memory_peak(device: str) -> dict[str, int]:
    """The most bytes that PyTorch has held on the device since the last call; nothing of a processor."""
    import torch

    if not device.startswith("cuda"):
        return {}
    found = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return {"device_memory_peak": int(found)}


def matrix_peak(X: Any, K: int) -> dict[str, float]:
    """Floating-point operations per second of products of some rows of X with weights of K columns.

    Under "" those in float32, and on a GPU under "_tf32" those in TF32.
    """
    import torch

    part = X[:_ROWS].clone()
    W = torch.randn((X.shape[1], K), dtype=X.dtype, device=X.device)
    found = {}
    before = torch.get_float32_matmul_precision()
    for key, precision in {"": "highest", "_tf32": "high"}.items():
        if key and not X.is_cuda:
            continue
        torch.set_float32_matmul_precision(precision)
        seconds = []
        for _ in range(_TIMES + 1):
            settled(str(X.device))
            begun = time.perf_counter()
            part @ W
            settled(str(X.device))
            seconds.append(time.perf_counter() - begun)
        found[key] = 2.0 * part.shape[0] * X.shape[1] * K / median(seconds[1:])
    torch.set_float32_matmul_precision(before)
    return found
