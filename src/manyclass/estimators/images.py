"""Settings of `StagewiseClassifier.for_images`, chosen on held-out rows of MNIST and CIFAR-10."""

from __future__ import annotations

from typing import Any

from manyclass.features import Chain, KMeansPatches, Nystrom, PrincipalComponents

__all__ = ["image_settings"]

_COLOR: dict[str, Any] = {"pool": 3, "power": 0.5, "threshold": 0.4, "n_patches": 200_000, "standardize": True}


def image_settings(shape: Any) -> dict[str, Any]:
    """Parameters of `StagewiseClassifier` for images of this shape (height, width, channels), or for these images."""
    given = tuple(shape) if isinstance(shape, tuple | list) else ()
    if getattr(shape, "ndim", 0) in (3, 4):  # images
        given = (*map(int, shape.shape[1:]), 1)[:3]
    if len(given) != 3 or not all(isinstance(n, int) and n >= 1 for n in given):
        got = f"an array of shape {shape.shape}" if hasattr(shape, "shape") else repr(shape)
        raise ValueError(
            "shape must be (height, width, channels), such as (28, 28, 1), or images (n, height, width) or (n, height, "
            f"width, channels), got {got}"
        )
    height, width, channels = given
    if channels == 1:
        side = min(6, max(2, min(height, width) // 3))  # of 8 x 8 digits, patches of 2 or 3 were better than of 4 to 6
        patches = KMeansPatches(100, shape=given, patch=side, pool=4, power=0.5, contrast=None, standardize=True)
        made, odd = 200 * min(4, max(1, height - side + 1)) * min(4, max(1, width - side + 1)), 0
        components, size, n_blocks, alpha = min(300, made), 2048, 4, 1e-5
    else:
        # Mirror images need a multiple of three columns of places for the filters: the patch is as wide as that takes.
        patch = next((w for w in (9, 8, 7, 10, 6) if width > w and (width - w + 1) % 3 == 0), None)
        side = patch or 6
        patches = KMeansPatches(200 if patch else 400, shape=given, patch=side, mirror=bool(patch), **_COLOR)
        made = 800 * min(3, max(1, height - side + 1)) * min(3, max(1, width - side + 1))
        odd = made // 2 if patch else 0
        components, size, n_blocks, alpha = min(1000, made), 4000, 8, 3e-6
    return {
        "prepare": Chain(patches, PrincipalComponents(components, n_odd=odd)),
        "features": Nystrom(n_odd=components // 2 if odd else 0),
        "block_size": size,
        "n_blocks": n_blocks,
        "alpha": alpha,
        "update": "calibrated",
        "basis": "linear",
    }
