"""Generated rows like a network's embeddings, dense: unit length, falling spectrum, overlapping classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Split

FILES = ()
SOURCE = "generated"
VARIANTS = ("100", "1000", "imagenet", "small")

#: rows, features, classes, and standard deviation within classes in units of that of their centers; a fifth of the rows
#: more are for the test.
_SIZES = {
    "100": (50_000, 1024, 100, 5.0),
    "1000": (100_000, 512, 1000, 3.0),
    "imagenet": (1_280_000, 1024, 1000, 4.0),
    "small": (4000, 64, 10, 2.0),
}
#: Rows that are made at a time on a device.
_AT_ONCE = 1 << 17


def build(folder: Path, variant: str) -> Split:
    """Centers of the classes, and rows about them, are normal with the standard deviation j^-1/2 along direction j.

    The directions are turned by a random orthogonal matrix, and the rows scaled to length 1.
    """
    n, d, K, within = _SIZES[variant]
    rng = np.random.default_rng(0)
    spectrum = (np.arange(1, d + 1) ** -0.5).astype(np.float32)
    centers = rng.standard_normal((K, d), dtype=np.float32) * spectrum
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    y = np.concatenate([np.arange(K), rng.integers(0, K, n + n // 5 - K)])
    X = rng.standard_normal((len(y), d), dtype=np.float32)
    X *= within * spectrum
    X += centers[y]
    X = X @ turn
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return Split(X[:n], y[:n], X[n:], y[n:])


def on_device(variant: str, device: str) -> tuple[Any, Any, Any, Any]:
    """Rows and classes as `build` makes them, by PyTorch on a device: X, y, and those of the test. Other numbers."""
    import torch

    n, d, K, within = _SIZES[variant]
    generator = torch.Generator(device).manual_seed(0)
    how: dict[str, Any] = {"generator": generator, "device": device}
    spectrum = torch.arange(1, d + 1, device=device) ** -0.5
    centers = torch.randn((K, d), **how) * spectrum
    turn = torch.linalg.qr(torch.randn((d, d), dtype=torch.float64, **how))[0].float()
    y = torch.cat([torch.arange(K, device=device), torch.randint(K, (n + n // 5 - K,), **how)])
    X = torch.empty((len(y), d), device=device)
    for begin in range(0, len(y), _AT_ONCE):
        part = X[begin : begin + _AT_ONCE]
        made = torch.randn(part.shape, **how) * (within * spectrum) + centers[y[begin : begin + _AT_ONCE]]
        made = made @ turn
        part[...] = made / torch.linalg.vector_norm(made, dim=1, keepdim=True)
    return X[:n], y[:n], X[n:], y[n:]
