"""CIFAR-10 images: 50 000 x 3072 (32 x 32 RGB, 0 to 255), 10 classes, dense; from lossy JPEG files. Needs Pillow.

As ``cifar10/patches`` 3200 features instead: responses of 400 k-means filters, rectified on both sides, averaged over
quarters of the images, standardized.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import Missing, Split
from manyclass.features import KMeansPatches

FILES = ("cifar10/cifar10_jpeg.tar.xz",)
SOURCE = "the images as JPEG files, packed with xz: train/<class>/<number>.jpg and test/<class>/<number>.jpg"

VARIANTS = ("", "patches")
#: Of an image, channels last.
SHAPE = (32, 32, 3)


def build(folder: Path, variant: str) -> Split:
    try:
        from PIL import Image
    except ImportError as error:
        raise Missing("JPEG files are decoded by Pillow: pip install Pillow") from error
    found: dict[str, list[tuple[str, str, Any]]] = {"train": [], "test": []}
    with tarfile.open(folder / FILES[0]) as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.isfile() and member.name.endswith(".jpg") else None
            if handle is not None:
                part, name, number = member.name.split("/")[-3:]
                with Image.open(io.BytesIO(handle.read())) as image:
                    found[part].append((name, number, np.asarray(image.convert("RGB"), np.uint8)))
    classes = sorted({name for name, _, _ in found["train"]})
    parts = []
    for rows in (found["train"], found["test"]):
        rows.sort(key=lambda row: row[:2])
        # Sorted by class in the archive: a stochastic method would see one class after the other.
        order = np.random.default_rng(0).permutation(len(rows))
        parts.append(np.stack([rows[i][2] for i in order]).reshape(len(rows), -1))
        parts.append(np.array([classes.index(rows[i][0]) for i in order], np.int64))
    images, y, images_test, y_test = parts
    if variant != "patches":
        return Split(images, y, images_test, y_test)
    block = KMeansPatches(400, shape=SHAPE, pool=2, standardize=True, random_state=0, n_jobs=-1).fit(images)
    return Split(block.transform(images), y, block.transform(images_test), y_test)
